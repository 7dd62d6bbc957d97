#include "parallel/planner/plan_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "parallel/base/units.h"
#include "parallel/plan/batch_split.h"
#include "parallel/predict/host_memory.h"
#include "parallel/predict/phase_memory.h"

namespace headroom::planner {

std::vector<plan::PhaseBytes> predicted_phase_bytes(
    const predict::MemoryRequest& request) {
  // Ranks with equal shares need equally much.
  const plan::ParallelLayout& layout = request.plan.layout;
  const auto samples = [&](const plan::MeshCoordinates& at) {
    return plan::share_of(request.global_batch_size, layout.data_parallel_size,
                          at.data_parallel_rank)
        .size();
  };
  const auto image_rows = [&](const plan::MeshCoordinates& at) {
    int64_t stride = 1;
    for (const predict::ModelLayer& layer : request.layers)
      stride = std::max(stride, layer.stride);
    return plan::share_of(request.image_height / stride,
                          layout.spatial_parallel_size, at.spatial_rank)
        .size();
  };
  // The first part of an image joins the heads, and rank 0 writes files.
  using Kind = std::tuple<int, int64_t, int64_t, bool, bool>;
  std::map<Kind, plan::PhaseBytes> known;
  std::vector<plan::PhaseBytes> bytes;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const plan::MeshCoordinates at = plan::coordinates_of(layout, rank);
    const auto [place, is_new] =
        known.try_emplace({at.pipeline_stage, samples(at), image_rows(at),
                           at.spatial_rank == 0, rank == 0});
    if (is_new) place->second = predict::estimate_phases(request, at);
    bytes.push_back(place->second);
  }
  return bytes;
}

std::vector<int64_t> predicted_peak_bytes(
    const predict::MemoryRequest& request) {
  std::vector<int64_t> bytes;
  for (const plan::PhaseBytes& rank : predicted_phase_bytes(request))
    bytes.push_back(rank.peak());
  return bytes;
}

void predict_memory(const configs::RunConfig& config,
                    const std::vector<layers::LayerCost>& layers,
                    plan::Plan& plan) {
  predict::MemoryRequest request =
      predict::memory_request(config, plan, layers);
  const int64_t limit = config.memory_limit > 0
                            ? config.memory_limit
                            : std::numeric_limits<int64_t>::max();
  const int64_t most = predict::validation_batch_size(config);
  plan.validation_images =
      most == 0 ? 0 : predict::most_validation_images(request, most, limit);
  request.plan.validation_images = plan.validation_images;
  plan.predicted_phase_bytes = predicted_phase_bytes(request);
  plan.predicted_peak_bytes.clear();
  for (size_t rank = 0; rank < plan.predicted_phase_bytes.size(); ++rank) {
    plan::PhaseBytes& bytes = plan.predicted_phase_bytes[rank];
    const plan::MeshCoordinates at =
        plan::coordinates_of(plan.layout, static_cast<int>(rank));
    bytes.host = predict::host_memory(config, plan, layers, at).total_bytes();
    plan.predicted_peak_bytes.push_back(bytes.peak());
  }
}

std::optional<HostShortage> host_shortage(
    const configs::RunConfig& config,
    const std::vector<layers::LayerCost>& layers, const plan::Plan& plan) {
  // Rank 0 has the first, so the largest, part of everything, and the files.
  const int64_t least =
      predict::host_memory(config, plan, layers, {}).least_bytes();
  if (config.host_memory_limit == 0 || least <= config.host_memory_limit) {
    return std::nullopt;
  }
  return HostShortage{"a process's loaders need " + exact_bytes(least) +
                          " of the host's memory for a batch of each, but "
                          "--host-memory-limit is " +
                          exact_bytes(config.host_memory_limit),
                      "use --host-memory-limit " + std::to_string(least) +
                          " or more, or a smaller --batch or --img"};
}

int64_t fullest_rank_bytes(const plan::Plan& plan) {
  return *std::ranges::max_element(plan.predicted_peak_bytes);
}

std::string fullest_phase(const plan::Plan& plan) {
  const plan::PhaseBytes& fullest = *std::ranges::max_element(
      plan.predicted_phase_bytes, {}, &plan::PhaseBytes::peak);
  const int64_t peak = fullest.peak();
  if (peak == fullest.training) return "in a step";
  if (peak == fullest.start_up) return "at the start";
  return peak == fullest.validation ? "in a validation" : "for a checkpoint";
}

int64_t fullest_rank_training_bytes(const plan::Plan& plan) {
  int64_t most = 0;
  for (const plan::PhaseBytes& rank : plan.predicted_phase_bytes)
    most = std::max({most, rank.start_up, rank.training, rank.checkpoint});
  return most;
}

}  // namespace headroom::planner
