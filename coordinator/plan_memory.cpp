#include "coordinator/plan_memory.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "parallel/plan/batch_split.h"

namespace headroom {

std::vector<int64_t> predicted_peak_bytes(const MemoryRequest& request) {
  // Ranks with equal shares need equally much.
  const ParallelLayout& layout = request.plan.layout;
  const auto samples = [&](const MeshCoordinates& at) {
    return share_of(request.global_batch_size, layout.data_parallel_size,
                    at.data_parallel_rank)
        .size();
  };
  const auto image_rows = [&](const MeshCoordinates& at) {
    int64_t stride = 1;
    for (const memory::ModelRow& row : request.rows)
      stride = std::max(stride, row.stride);
    return share_of(request.image_height / stride, layout.spatial_parallel_size,
                    at.spatial_rank)
        .size();
  };
  std::map<std::tuple<int, int64_t, int64_t>, int64_t> known;
  std::vector<int64_t> bytes;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const MeshCoordinates at = coordinates_of(layout, rank);
    const auto [place, is_new] =
        known.try_emplace({at.pipeline_stage, samples(at), image_rows(at)}, 0);
    if (is_new) place->second = estimate_rank_memory(request, at).total();
    bytes.push_back(place->second);
  }
  return bytes;
}

int64_t fullest_rank_bytes(const Plan& plan) {
  return *std::ranges::max_element(plan.predicted_peak_bytes);
}

}  // namespace headroom
