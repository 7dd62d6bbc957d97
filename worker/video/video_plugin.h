// load_video_plugin loads libheadroom_video.so into this process, from the main
// thread.
#pragma once

#include <string>

#include "worker/video/video_api.h"

namespace headroom::video {

struct VideoPlugin {
  VideoApi* api = nullptr;  // lives until the process ends
  std::string reason;       // why there is none, and what to do
};

// Loads the plugin that lies beside the running program, where the build puts
// it, or that the environment's HEADROOM_VIDEO_PLUGIN names.
VideoPlugin load_video_plugin();

}  // namespace headroom::video
