#include "worker/video/ffmpeg_picture.h"

#include <cstddef>
#include <cstring>

namespace headroom::video {
namespace {

constexpr size_t kBytesOfRgb = 3;

}  // namespace

Frame picture_frame(int width, int height, AVPixelFormat kind) {
  Frame frame(av_frame_alloc());
  if (!frame) return nullptr;
  frame->width = width;
  frame->height = height;
  frame->format = kind;
  if (av_frame_get_buffer(frame.get(), /*align=*/0) < 0) return nullptr;
  return frame;
}

void copy_rows(const AVFrame& frame, uint8_t* rows) {
  const size_t bytes = static_cast<size_t>(frame.width) * kBytesOfRgb;
  for (int y = 0; y < frame.height; ++y, rows += bytes) {
    std::memcpy(rows, frame.data[0] + ptrdiff_t{y} * frame.linesize[0], bytes);
  }
}

void copy_rows(const uint8_t* rows, AVFrame& frame) {
  const size_t bytes = static_cast<size_t>(frame.width) * kBytesOfRgb;
  for (int y = 0; y < frame.height; ++y, rows += bytes) {
    std::memcpy(frame.data[0] + ptrdiff_t{y} * frame.linesize[0], rows, bytes);
  }
}

bool Scaler::convert(const AVFrame& from, AVFrame& to) {
  SwsContext* const context =
      sws_getCachedContext(context_.release(), from.width, from.height,
                           static_cast<AVPixelFormat>(from.format), to.width,
                           to.height, static_cast<AVPixelFormat>(to.format),
                           SWS_BILINEAR | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT,
                           nullptr, nullptr, nullptr);
  context_.reset(context);
  if (context == nullptr) return false;
  // What the file says of its colours; where it says nothing, BT.601.
  constexpr int kNeutral = 1 << 16;
  const auto range = [](const AVFrame& frame) {
    return frame.color_range == AVCOL_RANGE_JPEG ||
                   frame.format == AV_PIX_FMT_RGB24
               ? 1
               : 0;
  };
  sws_setColorspaceDetails(context, sws_getCoefficients(from.colorspace),
                           range(from), sws_getCoefficients(to.colorspace),
                           range(to), 0, kNeutral, kNeutral);
  return sws_scale(context, from.data, from.linesize, 0, from.height, to.data,
                   to.linesize) == to.height;
}

}  // namespace headroom::video
