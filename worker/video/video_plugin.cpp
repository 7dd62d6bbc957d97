#include "worker/video/video_plugin.h"

namespace headroom::video {

VideoPlugin load_video_plugin() {
  return load_plugin_api<VideoApi>(
      {.variable = "HEADROOM_VIDEO_PLUGIN",
       .file_name = "libheadroom_video.so",
       .factory = kVideoApiFactory,
       .version = kVideoApiVersion,
       .lack = "this build reads no videos",
       .packages = "libavformat-dev, libavcodec-dev and libswscale-dev",
       .libraries = "FFmpeg 5, as Debian 12's libavformat59, libavcodec59 and "
                    "libswscale6"});
}

}  // namespace headroom::video
