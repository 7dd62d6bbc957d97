#include "deploy/records/older_copy.h"

#include <algorithm>
#include <vector>

#include "deploy/records/run_lines.h"

namespace headroom::records {

std::optional<OlderCopy> older_copy(
    const std::filesystem::path& run_directory) {
  const std::optional<FolderPlace> noted = noted_elsewhere(run_directory);
  if (!noted) return std::nullopt;
  const std::vector<int64_t> checkpoints = checkpoints_in(run_directory);
  const int64_t saved = checkpoints.empty() ? 0 : checkpoints.back();
  int64_t steps = saved;
  // A run that was killed may have no checkpoint of its last steps, so a copy
  // of the noted folder counts by its lines. Other lines do not count: the last
  // one may be of a step that only a lost rank 0 had committed.
  if (!is_elsewhere(run_directory, *noted)) {
    if (const auto last = last_step(run_directory)) {
      // A rank 0 that was killed may not have written its last step's line.
      steps = std::max(steps, last->step + 2);
    }
  }
  if (steps >= noted->steps) return std::nullopt;
  return OlderCopy{*noted, saved};
}

}  // namespace headroom::records
