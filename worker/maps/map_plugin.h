// load_map_plugin: loads libheadroom_maps.so into this process. Call it from
// the main thread.
#pragma once

#include "parallel/base/plugin_library.h"
#include "worker/maps/map_api.h"

namespace headroom::maps {

using MapPlugin = PluginApi<MapApi>;

// Loads the plugin from the folder of the running program, where the build puts
// it, or from the path in the environment variable HEADROOM_MAP_PLUGIN.
MapPlugin load_map_plugin();

}  // namespace headroom::maps
