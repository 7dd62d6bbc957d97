#include "worker/maps/map_plugin.h"

namespace headroom::maps {

MapPlugin load_map_plugin() {
  return load_plugin_api<MapApi>(
      {.variable = "HEADROOM_MAP_PLUGIN",
       .file_name = "libheadroom_maps.so",
       .factory = kMapApiFactory,
       .version = kMapApiVersion,
       .lack = "this build knows no maps",
       .packages = "libgdal-dev",
       .libraries = "GDAL 3.6, as Debian 12's libgdal32"});
}

}  // namespace headroom::maps
