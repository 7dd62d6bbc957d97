// FFmpeg's pictures: frames that own their pixels, and the change from one kind
// of pixel to another.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/frame.h>
#include <libswscale/swscale.h>
}

namespace headroom::video {

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

// With rows as long as FFmpeg's vector code wants them; null: no memory.
Frame picture_frame(int width, int height, AVPixelFormat kind);

// RGB24 frames from and to rows without gaps. REQUIRES: of the frame's size.
void copy_rows(const AVFrame& frame, uint8_t* rows);
void copy_rows(const uint8_t* rows, AVFrame& frame);

class Scaler {
 public:
  // Of the same size. False: there is no way from one kind to the other.
  bool convert(const AVFrame& from, AVFrame& to);

 private:
  struct FreeContext {
    void operator()(SwsContext* context) const { sws_freeContext(context); }
  };
  std::unique_ptr<SwsContext, FreeContext> context_;
};

}  // namespace headroom::video
