#include "parallel/pipeline/skip_routes.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::pipeline {

int stage_of_layer(const std::vector<int64_t>& stage_begins, int layer) {
  const auto behind =
      std::upper_bound(stage_begins.begin(), stage_begins.end(), layer);
  HEADROOM_CHECK(behind != stage_begins.begin(),
                 cat("layer ", layer, " is in no stage"));
  return static_cast<int>(behind - stage_begins.begin()) - 1;
}

std::vector<StageRoutes> skip_routes(
    const std::vector<std::vector<int>>& inputs,
    const std::vector<int64_t>& stage_begins) {
  const int num_layers = static_cast<int>(inputs.size());
  HEADROOM_CHECK(!stage_begins.empty() && stage_begins.front() == 0 &&
                     stage_begins.back() < num_layers,
                 cat("stages do not tile ", num_layers, " layers"));
  for (size_t stage = 1; stage < stage_begins.size(); ++stage)
    HEADROOM_CHECK(stage_begins[stage - 1] < stage_begins[stage],
                   cat("stage ", stage - 1, " has no layer"));

  std::vector<StageRoutes> routes(stage_begins.size());
  std::map<int, std::set<int>> readers;  // layer -> other stages that read it
  for (int layer = 0; layer < num_layers; ++layer) {
    const int stage = stage_of_layer(stage_begins, layer);
    for (const int input : inputs[static_cast<size_t>(layer)]) {
      HEADROOM_CHECK(input >= -1 && input < layer,
                     cat("layer ", layer, " reads layer ", input));
      if (input == -1) {
        routes[static_cast<size_t>(stage)].reads_images = true;
      } else if (stage_of_layer(stage_begins, input) != stage) {
        readers[input].insert(stage);
      }
    }
  }
  for (const auto& [layer, stages] : readers) {
    const int from = stage_of_layer(stage_begins, layer);
    routes[static_cast<size_t>(from)].sent.push_back(
        {layer, {stages.begin(), stages.end()}});
    for (const int to : stages)
      routes[static_cast<size_t>(to)].received.push_back({layer, from});
  }
  return routes;
}

}  // namespace headroom::pipeline
