#include "parallel/planner/plan_memory.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "configs/multi_scale.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/batch_split.h"
#include "parallel/planner/saved_plan.h"
#include "parallel/planner/stage_cut.h"
#include "parallel/predict/host_memory.h"
#include "parallel/predict/phase_memory.h"

namespace headroom::planner {
namespace {

// Data ranks that usually share a machine, where an exchange costs little.
constexpr int kNearRanks = 8;

// Ranks with equal shares need equally much.
class RankKinds {
 public:
  // The pipeline stage; how many samples and how many blocks of image lines;
  // the first part of an image joins the heads, and rank 0 writes files.
  using Kind = std::tuple<int, int64_t, int64_t, bool, bool>;

  explicit RankKinds(const predict::MemoryRequest& request)
      : request_(request),
        parts_(plan::parts_of(
            {request.global_batch_size, request.plan.layout.data_parallel_size,
             request.plan.micro_batch_size, request.plan.batch_norm_rule()},
            request.global_batch_size, predict::kManyCells)) {
    for (const predict::ModelLayer& layer : request.layers)
      stride_ = std::max(stride_, layer.stride);
  }

  Kind of(int rank, const plan::MeshCoordinates& at) const {
    const plan::ParallelLayout& layout = request_.plan.layout;
    return {at.pipeline_stage,
            parts_[static_cast<size_t>(at.data_parallel_rank)].local.size(),
            plan::share_of(request_.image_height / stride_,
                           layout.spatial_parallel_size, at.spatial_rank)
                .size(),
            at.spatial_rank == 0, rank == 0};
  }

 private:
  const predict::MemoryRequest& request_;
  const std::vector<plan::BatchPart> parts_;  // each data rank's
  int64_t stride_ = 1;
};

}  // namespace

std::vector<plan::PhaseBytes> predicted_phase_bytes(
    const predict::MemoryRequest& request) {
  const plan::ParallelLayout& layout = request.plan.layout;
  const RankKinds kinds(request);
  std::map<RankKinds::Kind, plan::PhaseBytes> known;
  std::vector<plan::PhaseBytes> bytes;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const plan::MeshCoordinates at = plan::coordinates_of(layout, rank);
    const auto [place, is_new] = known.try_emplace(kinds.of(rank, at));
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
  const RankKinds kinds(request);
  std::map<RankKinds::Kind, int64_t> host_bytes;
  for (size_t rank = 0; rank < plan.predicted_phase_bytes.size(); ++rank) {
    plan::PhaseBytes& bytes = plan.predicted_phase_bytes[rank];
    const plan::MeshCoordinates at =
        plan::coordinates_of(plan.layout, static_cast<int>(rank));
    const auto [known, is_new] =
        host_bytes.try_emplace(kinds.of(static_cast<int>(rank), at));
    if (is_new) {
      known->second =
          predict::host_memory(config, plan, layers, at).total_bytes();
    }
    bytes.host = known->second;
    plan.predicted_peak_bytes.push_back(bytes.peak());
  }
}

MemoryFit memory_fit(const configs::RunConfig& config,
                     const std::vector<layers::LayerCost>& layers,
                     const plan::Plan& plan) {
  predict::MemoryRequest request =
      predict::memory_request(config, plan, layers);
  request.plan.validation_images =
      std::min<int64_t>(1, predict::validation_batch_size(config));
  const auto fits = [&](const predict::MemoryEstimate& estimate) {
    return estimate.total() <= config.memory_limit;
  };
  const RankKinds kinds(request);
  std::set<RankKinds::Kind> known;
  for (int rank = 0; rank < plan.layout.world_size(); ++rank) {
    const plan::MeshCoordinates at = plan::coordinates_of(plan.layout, rank);
    if (!known.insert(kinds.of(rank, at)).second) continue;
    // What takes least time to know comes first.
    if (!fits(predict::estimate_checkpoint(request, at)) ||
        !fits(predict::estimate_start_up(request, at))) {
      return MemoryFit::kStateTooLarge;
    }
    if (!fits(predict::estimate_rank_memory(request, at)) ||
        !fits(predict::estimate_validation(request, at))) {
      return MemoryFit::kStepTooLarge;
    }
  }
  return MemoryFit::kFits;
}

std::optional<std::string> host_shortage(
    const configs::RunConfig& config,
    const std::vector<layers::LayerCost>& layers, const plan::Plan& plan) {
  // Rank 0 has the first, so the largest, part of everything, and the files.
  const int64_t least =
      predict::host_memory(config, plan, layers, {}).least_bytes();
  if (config.host_memory_limit == 0 || least <= config.host_memory_limit) {
    return std::nullopt;
  }
  return "a process's loaders need " + exact_bytes(least) +
         " of the host's memory for a batch of each, but --host-memory-limit "
         "is " +
         exact_bytes(config.host_memory_limit);
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

namespace {

// Work in the unit of configs/layers/layer_cost.h: yolov5n, 16 images of 160
// px, takes one core 0.13 s. The link: maps of megabytes between processes over
// loopback, which take as much of both cores.
constexpr predict::DeviceSpeed kProcessorCore{.work_per_second = 1.1e11,
                                              .link_bytes_per_second = 1e9,
                                              .link_latency_seconds = 2e-4};

// Sums over ranks, and rows around maps for what reaches beyond a rank's own.
void count_exchanges(const layers::LayerProgram& program,
                     predict::TimedLayer& layer) {
  for (const layers::LayerProgram::Step& step : program.steps) {
    if (step.facts.sums_channels) ++layer.norm_layers;
    for (const int64_t channel_rows : step.facts.halo_channel_rows) {
      ++layer.halo_exchanges;
      layer.halo_channel_rows += channel_rows;
    }
  }
}

}  // namespace

double layer_work(const layers::LayerCost& layer,
                  plan::ActivationPolicy policy) {
  const layers::LayerTime time = layers::layer_time(layer);
  switch (policy) {
    case plan::ActivationPolicy::kKeep:
      return time.keep;
    case plan::ActivationPolicy::kLean:
      return time.lean;
    case plan::ActivationPolicy::kRecompute:
      return time.recompute;
    case plan::ActivationPolicy::kOffload:
      return time.offload;
  }
  HEADROOM_CHECK(false, cat("activation policy ", static_cast<int>(policy)));
}

predict::TimeRequest time_request(
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers) {
  predict::TimeRequest request;
  request.plan = plan;
  request.global_batch_size = config.global_batch_size;
  request.element_bytes = config.precision == configs::Precision::kFp64 ? 8 : 4;
  request.device = kProcessorCore;
  if (config.network) {
    request.device.link_bytes_per_second =
        config.network->slowest_bytes_per_second;
    request.device.link_latency_seconds = config.network->latency_seconds;
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const layers::LayerCost& layer = layers[i];
    predict::TimedLayer part;
    part.work_per_pixel = layer_work(layer, policy_of(plan, i));
    part.parameters = layer.parameters;
    part.channels = layer.channels;
    part.stride = layer.stride;
    part.inputs = layer.inputs;
    if (layer.program != nullptr) count_exchanges(*layer.program, part);
    request.layers.push_back(part);
  }
  return request;
}

plan::ActivationPolicy policy_of(const plan::Plan& plan, size_t layer) {
  return plan.activation_policies.empty() ? plan::ActivationPolicy::kKeep
                                          : plan.activation_policies[layer];
}

predict::StepEstimate plan_time(const configs::RunConfig& config,
                                const plan::Plan& plan,
                                const std::vector<layers::LayerCost>& layers) {
  const int64_t stride = layers::largest_stride(layers);
  predict::TimeRequest request = time_request(config, plan, layers);
  // A run goes through all of its sizes, each as often.
  const std::vector<configs::InputSize> sizes =
      configs::input_sizes(config, stride);
  predict::StepEstimate mean;
  for (const configs::InputSize& size : sizes) {
    request.image_height = size.height;
    request.image_width = size.width;
    const predict::StepEstimate step = predict::estimate_step(request);
    mean.compute += step.compute / static_cast<double>(sizes.size());
    mean.communication +=
        step.communication / static_cast<double>(sizes.size());
    mean.statistics += step.statistics / static_cast<double>(sizes.size());
    mean.num_statistics = step.num_statistics;
  }
  return mean;
}

bool exchanges_far(const configs::RunConfig& config, const plan::Plan& plan) {
  return plan.layout.data_parallel_size > kNearRanks &&
         plan::groups_span_ranks(batch_cut(config, plan),
                                 config.global_batch_size, predict::kManyCells);
}

std::string statistics_text(const predict::StepEstimate& step) {
  if (step.num_statistics == 0) return "";
  return cat("batch-norm groups span ranks: ", step.num_statistics,
             " exchanges of statistics a step, predicted at ",
             std::lround(100 * step.statistics / step.total()),
             " % of its time");
}

}  // namespace headroom::planner
