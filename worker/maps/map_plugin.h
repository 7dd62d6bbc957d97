// load_map_plugin loads libheadroom_maps.so into this process, from the main
// thread.
#pragma once

#include <string>

#include "worker/maps/map_api.h"

namespace headroom::maps {

struct MapPlugin {
  MapApi* api = nullptr;  // lives until the process ends
  std::string reason;     // why there is none, and what to do
};

// Loads the plugin that lies beside the running program, where the build puts
// it, or that the environment's HEADROOM_MAP_PLUGIN names.
MapPlugin load_map_plugin();

}  // namespace headroom::maps
