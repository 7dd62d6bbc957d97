// load_video_plugin loads libheadroom_video.so into this process, from the main
// thread.
#pragma once

#include "parallel/base/plugin_library.h"
#include "worker/video/video_api.h"

namespace headroom::video {

using VideoPlugin = PluginApi<VideoApi>;

// Loads the plugin from the folder of the running program, where the build puts
// it, or from the path in the environment's HEADROOM_VIDEO_PLUGIN.
VideoPlugin load_video_plugin();

}  // namespace headroom::video
