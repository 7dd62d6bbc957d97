// A regular file on this machine as FFmpeg reads and writes it: through these
// functions alone, so no name is ever taken for a protocol, a list or an
// address, and nothing that a file names is opened.
//
// Ownership: owns the descriptor and FFmpeg's buffer. Threads: one.
#pragma once

#include <memory>
#include <string>

extern "C" {
#include <libavformat/avformat.h>
}

namespace headroom::video {

struct CloseIo {
  void operator()(AVIOContext* io) const;
};
struct CloseInput {
  void operator()(AVFormatContext* context) const;
};
struct CloseOutput {
  void operator()(AVFormatContext* context) const;
};

class FfmpegFile {
 public:
  enum class Use { kRead, kWrite };
  FfmpegFile() = default;
  ~FfmpegFile();
  FfmpegFile(const FfmpegFile&) = delete;
  FfmpegFile& operator=(const FfmpegFile&) = delete;

  // Returns why not; "": it is open.
  std::string open(const std::string& path, Use use);
  AVIOContext* io() { return io_.get(); }
  // Of a written file: brings it to disk. Returns why not.
  std::string sync();

 private:
  int descriptor_ = -1;
  std::unique_ptr<AVIOContext, CloseIo> io_;
};

// Never opens what a file refers to.
int refuse_to_open(AVFormatContext*, AVIOContext**, const char*, int,
                   AVDictionary**);

// FFmpeg's words for its negative numbers.
std::string ffmpeg_error(int code);

}  // namespace headroom::video
