// Maps for tests, with the plugin that reads them.
#pragma once

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "tests/worker/maps/geotiff.h"
#include "worker/maps/map_plugin.h"

namespace headroom {

using Transform = std::array<double, 6>;

inline void name_built_plugin() {
  setenv("HEADROOM_MAP_PLUGIN", HEADROOM_BUILD_DIR "/bin/libheadroom_maps.so",
         1);
}

inline maps::MapApi& built_plugin() {
  name_built_plugin();
  const maps::MapPlugin plugin = maps::load_map_plugin();
  HEADROOM_CHECK(plugin.api != nullptr, plugin.reason);
  return *plugin.api;
}

// Writes the picture without loss, and creates the folder of the file.
inline void write_geotiff(const std::filesystem::path& file, const cv::Mat& rgb,
                          const Transform& transform, const std::string& system,
                          const std::vector<std::string>& options = {}) {
  std::filesystem::create_directories(file.parent_path());
  write_geotiff(file, rgb, Geotiff{transform, system, options});
}

inline nlohmann::json parsed(const std::filesystem::path& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

}  // namespace headroom
