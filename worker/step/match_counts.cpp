#include "worker/step/match_counts.h"

#include <algorithm>
#include <utility>

namespace headroom::step {

std::vector<int64_t> MatchCounts::own(const loader::Batch& batch) const {
  std::vector<int64_t> sums(static_cast<size_t>(sums_.size(0)), 0);
  if (!mesh_.is_last_stage() || mesh_.here.spatial_rank != 0) return sums;
  for (const std::vector<loss::LevelTargets>& micro_batch : batch.targets) {
    for (size_t level = 0; level < sums.size(); ++level) {
      sums[level] += micro_batch[level].size();
    }
  }
  return sums;
}

loss::GlobalCounts MatchCounts::of(const loader::Batch& batch) {
  if (newest_.step != batch.step) {
    newest_ = std::exchange(following_, {});
  }
  if (newest_.step != batch.step) {
    newest_ = {batch.step, own(batch)};
    std::ranges::copy(newest_.matches, sums_.data_ptr<int64_t>());
    mesh_.world.all_reduce(sums_);
    std::copy_n(sums_.const_data_ptr<int64_t>(), newest_.matches.size(),
                newest_.matches.begin());
  }
  loss::GlobalCounts counts{batch.global_size, {}};
  if (mesh_.is_last_stage()) counts.matches = newest_.matches;
  return counts;
}

}  // namespace headroom::step
