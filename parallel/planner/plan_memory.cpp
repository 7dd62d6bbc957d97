#include "parallel/planner/plan_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "parallel/base/units.h"
#include "parallel/plan/plan_parts.h"
#include "parallel/planner/bisection.h"
#include "parallel/planner/stage_cut.h"
#include "parallel/predict/host_memory.h"
#include "parallel/predict/phase_memory.h"

namespace headroom::planner {

// The ranks of one request. Ranks that need equal memory have the same
// RankKind.
class PlanMemory::Ranks {
 public:
  explicit Ranks(predict::MemoryRequest request)
      : request_(std::move(request)),
        parts_(plan::parts_of(
            plan::batch_cut(request_.plan, request_.global_batch_size),
            request_.global_batch_size, plan::kManyCells)),
        stride_(layers::largest_stride(request_.layers)) {
    request_.plan.reason.clear();
    request_.plan.predicted_peak_bytes.clear();
    request_.plan.predicted_phase_bytes.clear();
    bare_ = request_;
    bare_.layers.clear();
  }

  const predict::MemoryRequest& request() const { return request_; }
  const plan::ParallelLayout& layout() const { return request_.plan.layout; }
  int count() const { return layout().world_size(); }
  void set_validation_images(int64_t images) {
    request_.plan.validation_images = images;
  }
  Question question(Part part, int rank) const {
    Question question = {bare_, part, kind_of(rank)};
    // Only training depends on the policies, and only validation depends on
    // validation_images.
    plan::Plan& plan = question.request.plan;
    if (part != Part::kTraining) plan.activation_policies.clear();
    plan.validation_images =
        part == Part::kValidation ? request_.plan.validation_images : 0;
    return question;
  }

  // What a rank's memory depends on: the pipeline stage; the samples; the
  // blocks of image rows; whether the rank has the first part of an image, and
  // therefore joins the heads; whether it is rank 0, which writes files.
  RankKind kind_of(int rank) const {
    const plan::MeshCoordinates at = plan::coordinates_of(layout(), rank);
    return {at.pipeline_stage,
            parts_[static_cast<size_t>(at.data_parallel_rank)].local.size(),
            plan::share_of(request_.image_height / stride_,
                           layout().spatial_parallel_size, at.spatial_rank)
                .size(),
            at.spatial_rank == 0 ? 1 : 0, rank == 0 ? 1 : 0};
  }

 private:
  predict::MemoryRequest request_;
  predict::MemoryRequest bare_;               // request_ without its layers
  const std::vector<plan::BatchPart> parts_;  // one part for each data rank
  const int64_t stride_;
};

size_t PlanMemory::Hash::operator()(const Question& question) const {
  size_t hash = static_cast<size_t>(question.part);
  const auto add = [&hash](int64_t number) {
    hash = hash * 1'000'003 + static_cast<size_t>(number);
  };
  const predict::MemoryRequest& request = question.request;
  const plan::Plan& plan = request.plan;
  for (const int64_t number :
       {request.global_batch_size, request.image_height, request.image_width,
        int64_t{plan.layout.data_parallel_size},
        int64_t{plan.layout.pipeline_parallel_size}, plan.micro_batch_size,
        plan.batch_norm_group_size, int64_t{plan.zero_stage},
        plan.validation_images}) {
    add(number);
  }
  for (const int64_t number : question.rank) add(number);
  for (const plan::ActivationPolicy policy : plan.activation_policies) {
    add(static_cast<int64_t>(policy));
  }
  return hash;
}

int64_t PlanMemory::bytes(const Ranks& ranks, Part part, int rank) {
  Question question = ranks.question(part, rank);
  const auto known = bytes_.find(question);
  if (known != bytes_.end()) return known->second;
  const plan::MeshCoordinates at = plan::coordinates_of(ranks.layout(), rank);
  const auto estimate =
      part == Part::kStartUp      ? predict::estimate_start_up
      : part == Part::kTraining   ? predict::estimate_rank_memory
      : part == Part::kValidation ? predict::estimate_validation
                                  : predict::estimate_checkpoint;
  const int64_t total = estimate(ranks.request(), at).total();
  bytes_.emplace(std::move(question), total);
  return total;
}

void PlanMemory::set_bytes(const configs::RunConfig& config, plan::Plan& plan) {
  Ranks ranks(predict::memory_request(config, plan, model_.layers));
  const int64_t limit = config.memory_limit > 0
                            ? config.memory_limit
                            : std::numeric_limits<int64_t>::max();
  const auto fits_validation = [&](int64_t images) {
    ranks.set_validation_images(images);
    for (int stage = 0; stage < plan.layout.pipeline_parallel_size; ++stage) {
      const int first = plan::rank_of(plan.layout, {stage, 0, 0});
      if (bytes(ranks, Part::kValidation, first) > limit) return false;
    }
    return true;
  };
  // A whole validation batch at once, or as many images as fit, but at least 1.
  const int64_t most = predict::validation_batch_size(config);
  plan.validation_images = most == 0 || fits_validation(most)
                               ? most
                               : last_that_holds(1, most, fits_validation);
  ranks.set_validation_images(plan.validation_images);
  plan.predicted_phase_bytes = phase_bytes(ranks);
  plan.predicted_peak_bytes.clear();
  std::map<RankKind, int64_t> host_bytes;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    const auto [known, is_new] = host_bytes.try_emplace(ranks.kind_of(rank));
    if (is_new) {
      known->second =
          predict::host_memory(config, plan, model_.layers,
                               plan::coordinates_of(plan.layout, rank))
              .total_bytes();
    }
    plan::PhaseBytes& phases =
        plan.predicted_phase_bytes[static_cast<size_t>(rank)];
    phases.host = known->second;
    plan.predicted_peak_bytes.push_back(phases.peak());
  }
}

std::vector<plan::PhaseBytes> PlanMemory::phase_bytes(const Ranks& ranks) {
  std::vector<plan::PhaseBytes> all;
  std::map<RankKind, plan::PhaseBytes> kinds;  // each kind is predicted once
  for (int rank = 0; rank < ranks.count(); ++rank) {
    const auto [known, is_new] = kinds.try_emplace(ranks.kind_of(rank));
    plan::PhaseBytes& phases = known->second;
    if (is_new) {
      phases.start_up = bytes(ranks, Part::kStartUp, rank);
      phases.training = bytes(ranks, Part::kTraining, rank);
      phases.validation = bytes(ranks, Part::kValidation, rank);
      phases.checkpoint = bytes(ranks, Part::kCheckpoint, rank);
    }
    all.push_back(phases);
  }
  return all;
}

std::vector<int64_t> PlanMemory::peak_bytes(
    const predict::MemoryRequest& request) {
  const Ranks ranks(request);
  std::vector<int64_t> peaks;
  for (const plan::PhaseBytes& phases : phase_bytes(ranks)) {
    peaks.push_back(phases.peak());
  }
  return peaks;
}

MemoryFit PlanMemory::fit(const configs::RunConfig& config,
                          const plan::Plan& plan) {
  Ranks ranks(predict::memory_request(config, plan, model_.layers));
  ranks.set_validation_images(
      std::min<int64_t>(1, predict::validation_batch_size(config)));
  std::set<RankKind> kinds;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    if (!kinds.insert(ranks.kind_of(rank)).second) continue;
    const auto fits = [&](Part part) {
      return bytes(ranks, part, rank) <= config.memory_limit;
    };
    // The fastest predictions come first.
    if (!fits(Part::kCheckpoint) || !fits(Part::kStartUp)) {
      return MemoryFit::kStateTooLarge;
    }
    if (!fits(Part::kTraining) || !fits(Part::kValidation)) {
      return MemoryFit::kStepTooLarge;
    }
  }
  return MemoryFit::kFits;
}

std::vector<int64_t> PlanMemory::stage_begins(const configs::RunConfig& config,
                                              const plan::Plan& plan) {
  const predict::MemoryRequest request =
      predict::memory_request(config, plan, model_.layers);
  Question question = {request, Part::kStages};
  question.request.layers.clear();
  const auto known = stages_.find(question);
  if (known != stages_.end()) return known->second;
  return stages_.emplace(std::move(question), cut_stages(request))
      .first->second;
}

std::vector<int64_t> predicted_peak_bytes(
    const predict::MemoryRequest& request) {
  return PlanMemory(request.layers).peak_bytes(request);
}

std::optional<std::string> host_shortage(
    const configs::RunConfig& config,
    const std::vector<layers::LayerCost>& layers, const plan::Plan& plan) {
  if (config.host_memory_limit == 0) return std::nullopt;
  // Rank 0 needs the most memory: it has the first, largest share of samples
  // and rows, and it writes files.
  const int64_t least =
      predict::host_memory(config, plan, layers, {}).least_bytes();
  if (least <= config.host_memory_limit) return std::nullopt;
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

}  // namespace headroom::planner
