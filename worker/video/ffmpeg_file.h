// Gives FFmpeg access to one regular file of this machine. FFmpeg opens nothing
// itself, so no name is used as a protocol, list or address, and no file that
// another file names is opened.
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

  // Returns why the file could not be opened; "" on success.
  std::string open(const std::string& path, Use use);
  AVIOContext* io() { return io_.get(); }
  // Writes the file to disk. Returns why that failed; "" on success.
  std::string sync();

 private:
  int descriptor_ = -1;
  std::unique_ptr<AVIOContext, CloseIo> io_;
};

// Refuses to open the files that a file refers to.
int refuse_to_open(AVFormatContext*, AVIOContext**, const char*, int,
                   AVDictionary**);

// FFmpeg's message for an error code.
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

// Rows are padded for FFmpeg's vector code. Returns null without memory.
Frame picture_frame(int width, int height, AVPixelFormat kind);

// Copy RGB24 frames to and from rows without gaps, of the frame's size.
void copy_rows(const AVFrame& frame, uint8_t* rows);
void copy_rows(const uint8_t* rows, AVFrame& frame);

// Converts pictures between pixel formats.
class Scaler {
 public:
  // Both have one size. Returns false if FFmpeg cannot convert these formats.
  bool convert(const AVFrame& from, AVFrame& to);

 private:
  struct FreeContext {
    void operator()(SwsContext* context) const { sws_freeContext(context); }
  };
  std::unique_ptr<SwsContext, FreeContext> context_;
};

}  // namespace headroom::video
