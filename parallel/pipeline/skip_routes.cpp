#include "parallel/pipeline/skip_routes.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "parallel/base/check.h"

namespace headroom::pipeline {

int stage_of_row(const std::vector<int64_t>& stage_begins, int row) {
  const auto behind =
      std::upper_bound(stage_begins.begin(), stage_begins.end(), row);
  HEADROOM_CHECK(behind != stage_begins.begin(),
                 "row " + std::to_string(row) + " is in no stage");
  return static_cast<int>(behind - stage_begins.begin()) - 1;
}

std::vector<StageRoutes> skip_routes(
    const std::vector<std::vector<int>>& inputs,
    const std::vector<int64_t>& stage_begins) {
  const int num_rows = static_cast<int>(inputs.size());
  HEADROOM_CHECK(!stage_begins.empty() && stage_begins.front() == 0 &&
                     stage_begins.back() < num_rows,
                 "stages do not tile " + std::to_string(num_rows) + " rows");
  for (size_t stage = 1; stage < stage_begins.size(); ++stage)
    HEADROOM_CHECK(stage_begins[stage - 1] < stage_begins[stage],
                   "stage " + std::to_string(stage - 1) + " has no row");

  std::vector<StageRoutes> routes(stage_begins.size());
  std::map<int, std::set<int>> readers;  // row -> other stages that read it
  for (int row = 0; row < num_rows; ++row) {
    const int stage = stage_of_row(stage_begins, row);
    for (const int input : inputs[static_cast<size_t>(row)]) {
      HEADROOM_CHECK(
          input >= -1 && input < row,
          "row " + std::to_string(row) + " reads row " + std::to_string(input));
      if (input == -1) {
        routes[static_cast<size_t>(stage)].reads_images = true;
      } else if (stage_of_row(stage_begins, input) != stage) {
        readers[input].insert(stage);
      }
    }
  }
  for (const auto& [row, stages] : readers) {
    const int from = stage_of_row(stage_begins, row);
    routes[static_cast<size_t>(from)].sent.push_back(
        {row, {stages.begin(), stages.end()}});
    for (const int to : stages)
      routes[static_cast<size_t>(to)].received.push_back({row, from});
  }
  return routes;
}

}  // namespace headroom::pipeline
