#include "parallel/predict/phase_memory.h"

#include <algorithm>
#include <utility>

#include "parallel/predict/evaluation.h"
#include "parallel/predict/rank_share.h"
#include "parallel/predict/start_up.h"

namespace headroom::predict {
namespace {

// The rest of what is there in any phase after the first step.
MemoryEstimate between_steps(const RankShare& share) {
  MemoryEstimate estimate = share.resident();
  const bool is_split = share.plan().layout.spatial_parallel_size > 1;
  if (is_split || share.groups_span_ranks())
    estimate.communication += share.exchange_bytes(share.micro_batch(0));
  return estimate;
}

// A batch's images are padded by half a stride, in whole strides.
ValidationShape largest_shape(const RankShare& share) {
  const MemoryRequest& request = share.request();
  ValidationShape shape;
  shape.samples = share.plan().validation_images;
  const auto padded = [&](int64_t validation, int64_t training) {
    return (validation > 0 ? validation : training) + share.largest_stride();
  };
  shape.image_height =
      padded(request.validation_image_height, request.image_height);
  shape.image_width =
      padded(request.validation_image_width, request.image_width);
  shape.matches.assign(request.layers.back().inputs.size(), 0);
  shape.matches.front() = share.most_matches(shape.samples);
  return shape;
}

int64_t fullest_rank(const MemoryRequest& request) {
  int64_t largest = 0;
  for (int stage = 0; stage < request.plan.layout.pipeline_parallel_size;
       ++stage) {
    plan::MeshCoordinates first;
    first.pipeline_stage = stage;
    largest = std::max(largest, estimate_validation(request, first).total());
  }
  return largest;
}

}  // namespace

MemoryEstimate estimate_start_up(const MemoryRequest& request,
                                 const plan::MeshCoordinates& rank) {
  const RankShare share(request, rank);
  MemoryEstimate estimate = share.resident();
  // Models are made on the host, and their tensors sent as they are.
  if (request.on_device) {
    estimate.images = 0;  // none is loaded yet
    return estimate;
  }
  StartUpRequest start;
  start.stage = share.stage();
  start.element_bytes = request.element_bytes;
  start.is_mixed = request.map_bytes < request.element_bytes;
  start.num_moments = request.num_moments;
  start.num_threads = request.num_threads;
  start.largest_stride = share.largest_stride();
  start.records_passes = request.plan.layout.data_parallel_size > 1 ||
                         request.plan.layout.spatial_parallel_size > 1;
  start.resumes =
      request.resumes && plan::rank_of(request.plan.layout, rank) == 0;
  estimate.transient =
      std::max<int64_t>(0, start_up_peak_bytes(start) + share.teacher_bytes() -
                               (estimate.total() - estimate.workspace));
  // A teacher is read before the rest: beside it its file's tensors, and what
  // its fresh weights are drawn in.
  const int64_t reading = 3 * share.teacher_bytes();
  estimate.transient += std::max<int64_t>(0, reading - estimate.total());
  return estimate;
}

MemoryEstimate estimate_validation(const MemoryRequest& request,
                                   const plan::MeshCoordinates& rank) {
  const RankShare share(request, rank);
  MemoryEstimate estimate = between_steps(share);
  const ValidationShape shape =
      request.validation ? *request.validation : largest_shape(share);
  if (shape.samples == 0) {
    // Others' weights are gathered here too.
    if (share.stage().zero_stage > 0)
      estimate.communication += share.largest_gathered_layer();
    return estimate;
  }
  EvaluationRequest evaluation;
  evaluation.stage = share.stage();
  // Averaged weights are judged in their own type.
  evaluation.extents = share
                           .extents(shape.samples, /*groups=*/1,
                                    shape.image_height, shape.image_width)
                           .widened();
  evaluation.whole_image_height = shape.image_height;
  evaluation.spatial_rank = rank.spatial_rank;
  evaluation.loss = {request.num_classes, shape.matches, request.focal_loss,
                     request.smooths_labels};
  const int64_t peak = evaluation_peak_bytes(evaluation);
  const int64_t images =
      evaluation.stage.begin > 0
          ? 0
          : evaluation.extents.map_bytes(request.image_channels, 1);
  estimate.images += images;
  estimate.transient = peak - images;
  if (evaluation.extents.is_split())
    estimate.communication += share.exchange_bytes(evaluation.extents);
  return estimate;
}

MemoryEstimate estimate_checkpoint(const MemoryRequest& request,
                                   const plan::MeshCoordinates& rank) {
  const RankShare share(request, rank);
  MemoryEstimate estimate = between_steps(share);
  // The newest step's, where the run ends in mid-epoch.
  estimate.targets = share.target_bytes(
      request.step ? request.step->batch_matches
                   : share.most_matches(share.part().local.size()));
  return estimate;
}

plan::PhaseBytes estimate_phases(const MemoryRequest& request,
                                 const plan::MeshCoordinates& rank) {
  plan::PhaseBytes bytes;
  bytes.start_up = estimate_start_up(request, rank).total();
  bytes.training = estimate_rank_memory(request, rank).total();
  bytes.validation = estimate_validation(request, rank).total();
  bytes.checkpoint = estimate_checkpoint(request, rank).total();
  return bytes;
}

int64_t most_validation_images(const MemoryRequest& request, int64_t most,
                               int64_t limit) {
  MemoryRequest trial = request;
  trial.validation.reset();
  const auto fits = [&](int64_t images) {
    trial.plan.validation_images = images;
    return fullest_rank(trial) <= limit;
  };
  if (fits(most)) return most;
  int64_t fitting = 1, too_many = most;
  while (fitting + 1 < too_many) {
    const int64_t middle = fitting + (too_many - fitting) / 2;
    (fits(middle) ? fitting : too_many) = middle;
  }
  return fitting;
}

}  // namespace headroom::predict
