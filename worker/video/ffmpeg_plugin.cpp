// libheadroom_video.so: its one exported function, and the VideoApi behind it.
#include "worker/video/ffmpeg_reader.h"

extern "C" {
#include <libavutil/log.h>
}

namespace headroom::video {
namespace {

class Ffmpeg final : public VideoApi {
 public:
  std::unique_ptr<VideoReader> open(const std::string& file, int64_t max_pixels,
                                    std::string& reason) override {
    return open_video(file, max_pixels, reason);
  }
  std::unique_ptr<VideoWriter> create(const std::string& file,
                                      const VideoFormat& format,
                                      std::string& reason) override {
    return create_video(file, format, reason);
  }
};

}  // namespace
}  // namespace headroom::video

extern "C" headroom::video::VideoApi* headroom_video_api(int version) {
  static headroom::video::Ffmpeg api;
  if (version != headroom::video::kVideoApiVersion) return nullptr;
  av_log_set_level(AV_LOG_QUIET);  // our own messages report faults
  return &api;
}
