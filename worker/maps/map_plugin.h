// load_map_plugin loads libheadroom_maps.so into this process, from the main
// thread.
#pragma once

#include "parallel/base/plugin_library.h"
#include "worker/maps/map_api.h"

namespace headroom::maps {

using MapPlugin = PluginApi<MapApi>;

// Loads the plugin that lies beside the running program, where the build puts
// it, or that the environment's HEADROOM_MAP_PLUGIN names.
MapPlugin load_map_plugin();

}  // namespace headroom::maps
