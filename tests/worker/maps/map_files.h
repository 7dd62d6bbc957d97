// Maps and weights for tests, with the plugin and the tools that read them.
#pragma once

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "tests/worker/maps/geotiff.h"
#include "worker/maps/map_plugin.h"
#include "worker/model/layer_graph.h"
#include "worker/tools/tool_command.h"
#include "worker/weights/weights.h"

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

// Lossless; makes the folder.
inline void write_geotiff(const std::filesystem::path& file, const cv::Mat& rgb,
                          const Transform& transform, const std::string& system,
                          const std::vector<std::string>& options = {}) {
  std::filesystem::create_directories(file.parent_path());
  write_geotiff(file, rgb, Geotiff{transform, system, options});
}

// An untrained network, whose signals grow from layer to layer, the faster the
// smaller its running variance is, so that pixels decide.
inline void write_weights(const std::filesystem::path& file, int num_classes,
                          int64_t side, double variance) {
  const layers::ModelTable table = layers::load_model_table("yolov5n");
  model::LayerGraph model(table, num_classes, at::kFloat, 0);
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.name.ends_with("running_var")) entry.tensor->fill_(variance);
  }
  auto metadata = layers::model_metadata("yolov5n", table);
  layers::describe_input(metadata, {side, side}, 32);
  weights::save_weights(file, model.state(), metadata);
}

inline int run_tool(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return tools::find_tool_command(words.front())
      ->run(static_cast<int>(words.size()), arguments.data());
}

inline nlohmann::json parsed(const std::filesystem::path& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

}  // namespace headroom
