// A regular file on this machine as FFmpeg reads and writes it: through these
// functions alone, so no name is ever taken for a protocol, a list or an
// address, and nothing that a file names is opened.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/frame.h>
#include <libswscale/swscale.h>
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

  // Returns why it could not be opened, or "".
  std::string open(const std::string& path, Use use);
  AVIOContext* io() { return io_.get(); }
  // Brings a written file to disk. Returns why it could not, or "".
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

// Frames own their pixels.
struct FreeFrame {
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
};
using Frame = std::unique_ptr<AVFrame, FreeFrame>;

struct FreePacket {
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
};
using Packet = std::unique_ptr<AVPacket, FreePacket>;

struct FreeCodec {
  void operator()(AVCodecContext* context) const {
    avcodec_free_context(&context);
  }
};
using CodecContext = std::unique_ptr<AVCodecContext, FreeCodec>;

// Its rows are as long as FFmpeg's vector code wants; null: no memory.
Frame picture_frame(int width, int height, AVPixelFormat kind);

// RGB24 frames from and to rows without gaps. REQUIRES: of the frame's size.
void copy_rows(const AVFrame& frame, uint8_t* rows);
void copy_rows(const uint8_t* rows, AVFrame& frame);

// Changes pictures from one kind of pixel to another.
class Scaler {
 public:
  // Both pictures have one size. False: FFmpeg cannot convert these kinds.
  bool convert(const AVFrame& from, AVFrame& to);

 private:
  struct FreeContext {
    void operator()(SwsContext* context) const { sws_freeContext(context); }
  };
  std::unique_ptr<SwsContext, FreeContext> context_;
};

}  // namespace headroom::video
