#include "parallel/plan/stage_begins.h"

namespace headroom::plan {

std::optional<std::string> stage_begins_error(
    const std::vector<int64_t>& stage_begins, int pipeline_parallel_size) {
  if (stage_begins.size() != static_cast<size_t>(pipeline_parallel_size)) {
    return std::to_string(stage_begins.size()) +
           " stages for a pipeline axis of " +
           std::to_string(pipeline_parallel_size);
  }
  if (stage_begins.front() != 0) {
    return "the first stage begins at layer " +
           std::to_string(stage_begins.front()) + ", not at 0";
  }
  for (size_t i = 1; i < stage_begins.size(); ++i) {
    if (stage_begins[i] > stage_begins[i - 1] && stage_begins[i] < kMaxLayers) {
      continue;
    }
    return "stage " + std::to_string(i) + " begins at layer " +
           std::to_string(stage_begins[i]) + ", the one before at " +
           std::to_string(stage_begins[i - 1]);
  }
  return std::nullopt;
}

}  // namespace headroom::plan
