#include "worker/video/video_plugin.h"

#include "parallel/base/plugin_library.h"

namespace headroom::video {
namespace {

VideoPlugin without(const std::string& why) {
  return {nullptr, why +
                       "; bash deploy/local/setup.sh and build.sh make it, "
                       "with Debian's libavformat-dev, libavcodec-dev and "
                       "libswscale-dev"};
}

VideoPlugin without_ffmpeg(const std::string& why) {
  return {nullptr, why +
                       "; install FFmpeg 5, as Debian 12's libavformat59, "
                       "libavcodec59 and libswscale6"};
}

}  // namespace

VideoPlugin load_video_plugin() {
  const std::string path =
      plugin_path("HEADROOM_VIDEO_PLUGIN", "libheadroom_video.so");
  if (!plugin_exists(path)) {
    return without("this build reads no videos: there is no " + path);
  }
  const auto plugin = open_plugin<VideoApiFactory>(path, kVideoApiFactory);
  if (!plugin.is_loaded) return without_ffmpeg(plugin.error);
  if (plugin.factory == nullptr) return without(plugin.error);
  VideoApi* const api = plugin.factory(kVideoApiVersion);
  if (api == nullptr) {
    return without(path + " is of another version than this program");
  }
  return {api, ""};
}

}  // namespace headroom::video
