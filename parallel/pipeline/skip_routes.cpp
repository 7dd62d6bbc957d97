#include "parallel/pipeline/skip_routes.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "parallel/base/check.h"

namespace headroom {

int stage_of_row(const std::vector<int>& first_rows, int row) {
  const auto behind =
      std::upper_bound(first_rows.begin(), first_rows.end(), row);
  HEADROOM_CHECK(behind != first_rows.begin(),
                 "row " + std::to_string(row) + " is in no stage");
  return static_cast<int>(behind - first_rows.begin()) - 1;
}

std::vector<StageRoutes> skip_routes(
    const std::vector<std::vector<int>>& inputs,
    const std::vector<int>& first_rows) {
  const int num_rows = static_cast<int>(inputs.size());
  HEADROOM_CHECK(!first_rows.empty() && first_rows.front() == 0 &&
                     first_rows.back() < num_rows,
                 "stages do not tile " + std::to_string(num_rows) + " rows");
  for (size_t stage = 1; stage < first_rows.size(); ++stage)
    HEADROOM_CHECK(first_rows[stage - 1] < first_rows[stage],
                   "stage " + std::to_string(stage - 1) + " has no row");

  std::vector<StageRoutes> routes(first_rows.size());
  std::map<int, std::set<int>> readers;  // row -> other stages that read it
  for (int row = 0; row < num_rows; ++row) {
    const int stage = stage_of_row(first_rows, row);
    for (const int input : inputs[static_cast<size_t>(row)]) {
      HEADROOM_CHECK(
          input >= -1 && input < row,
          "row " + std::to_string(row) + " reads row " + std::to_string(input));
      if (input == -1) {
        routes[static_cast<size_t>(stage)].reads_images = true;
      } else if (stage_of_row(first_rows, input) != stage) {
        readers[input].insert(stage);
      }
    }
  }
  for (const auto& [row, stages] : readers) {
    const int from = stage_of_row(first_rows, row);
    routes[static_cast<size_t>(from)].sent.push_back(
        {row, {stages.begin(), stages.end()}});
    for (const int to : stages)
      routes[static_cast<size_t>(to)].received.push_back({row, from});
  }
  return routes;
}

}  // namespace headroom
