#include "worker/video/video_plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace headroom::video {
namespace {

std::string plugin_path() {
  if (const char* const given = std::getenv("HEADROOM_VIDEO_PLUGIN")) {
    return given;
  }
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path() / "libheadroom_video.so").string();
}

// dlopen's own words name the library that is missing.
std::string last_error() {
  const char* const text = dlerror();
  return text != nullptr ? text : "no reason given";
}

VideoPlugin without(const std::string& why) {
  return {nullptr, why +
                       "; bash deploy/local/setup.sh and build.sh make it, "
                       "with Debian's libavformat-dev, libavcodec-dev and "
                       "libswscale-dev"};
}

VideoPlugin without_ffmpeg() {
  return {nullptr, last_error() +
                       "; install FFmpeg 5, as Debian 12's libavformat59, "
                       "libavcodec59 and libswscale6"};
}

}  // namespace

VideoPlugin load_video_plugin() {
  const std::string path = plugin_path();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return without("this build reads no videos: there is no " + path);
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return without_ffmpeg();
  const auto factory =
      reinterpret_cast<VideoApiFactory>(dlsym(library, kVideoApiFactory));
  if (factory == nullptr) return without(last_error());
  VideoApi* const api = factory(kVideoApiVersion);
  if (api == nullptr) {
    return without(path + " is of another version than this program");
  }
  return {api, ""};
}

}  // namespace headroom::video
