#include "worker/maps/map_plugin.h"

#include "parallel/base/plugin_library.h"

namespace headroom::maps {
namespace {

MapPlugin without(const std::string& why) {
  return {nullptr, why +
                       "; bash deploy/local/setup.sh and build.sh make it, "
                       "with Debian's libgdal-dev"};
}

}  // namespace

MapPlugin load_map_plugin() {
  const std::string path =
      plugin_path("HEADROOM_MAP_PLUGIN", "libheadroom_maps.so");
  if (!plugin_exists(path)) {
    return without("this build knows no maps: there is no " + path);
  }
  const auto plugin = open_plugin<MapApiFactory>(path, kMapApiFactory);
  if (!plugin.is_loaded) {
    return {nullptr,
            plugin.error + "; install GDAL 3.6, as Debian 12's libgdal32"};
  }
  if (plugin.factory == nullptr) return without(plugin.error);
  MapApi* const api = plugin.factory(kMapApiVersion);
  if (api == nullptr) {
    return without(path + " is of another version than this program");
  }
  return {api, ""};
}

}  // namespace headroom::maps
