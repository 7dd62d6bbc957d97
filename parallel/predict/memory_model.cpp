#include "parallel/predict/memory_model.h"

#include <algorithm>

#include "parallel/base/head_fields.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/rank_share.h"

namespace headroom::predict {
namespace {

// How many micro-batches are simulated beyond those in flight.
constexpr size_t kMoreMicroBatches = 2;

class MemoryEstimator {
 public:
  MemoryEstimator(const MemoryRequest& request,
                  const plan::MeshCoordinates& rank)
      : request_(request),
        share_(request, rank),
        plan_(request.plan),
        estimate_(share_.resident()) {}

  MemoryEstimate run() {
    add_step();
    return estimate_;
  }

  // A shortened step: a few more micro-batches than can be in flight at once.
  StepRequest step() const {
    StepRequest step;
    step.stage = share_.stage();
    step.stage_begins = plan_.stage_begins;
    step.index = stage_index();
    // Further micro-batches would repeat the same pattern.
    const size_t count =
        std::min(share_.part().micro_batches.size(),
                 plan_.stage_begins.size() -
                     static_cast<size_t>(stage_index()) + kMoreMicroBatches);
    for (size_t i = 0; i < count; ++i) {
      step.micro_batches.push_back(share_.micro_batch(i));
      step.losses.push_back(loss(i));
    }
    return step;
  }

  RankMicroBatch micro_batch(size_t index) const {
    RankMicroBatch result;
    result.stage = share_.stage();
    result.shape = share_.micro_batch(index);
    result.loss = loss(index);
    result.num_in_flight = in_flight();
    return result;
  }

 private:
  int stage_index() const { return share_.rank().pipeline_stage; }
  int64_t in_flight() const {
    return std::min<int64_t>(
        plan_.layout.pipeline_parallel_size - stage_index(),
        static_cast<int64_t>(share_.part().micro_batches.size()));
  }

  void add_step() {
    const StepRequest step = this->step();
    StepMemory measured = step_memory(step);
    if (request_.captures_micro_batches &&
        !plan::capture_error(plan_, share_.cut())) {
      // The first steps, and steps of another shape, run without capture.
      measured.peak_bytes =
          std::max(measured.peak_bytes,
                   captured_step_bytes(step.stage, step.micro_batches.front(),
                                       captured_loss()));
    }
    const int64_t images =
        step.stage.begin > 0
            ? 0
            : in_flight() * step.micro_batches.front().map_bytes(
                                request_.image_channels, 1);
    const int64_t rest = measured.peak_bytes - images;
    estimate_.images += images;
    estimate_.activations = std::clamp<int64_t>(
        in_flight() * measured.kept_bytes - images, 0, rest);
    estimate_.transient = rest - estimate_.activations;
    add_targets();
  }

  // The loss shape with room for the most matches of every level.
  LossShape captured_loss() const {
    LossShape result = loss(0);
    const int64_t samples = share_.part().micro_batches.front().size();
    result.matches.assign(result.matches.size(),
                          match_capacity(request_, samples));
    return result;
  }

  LossShape loss(size_t micro_batch) const {
    LossShape result;
    result.num_classes = request_.num_classes;
    result.focal = request_.focal_loss;
    result.smooths_labels = request_.smooths_labels;
    result.has_anchors = request_.layers.back().anchors > 0;
    const int64_t samples = share_.part().micro_batches[micro_batch].size();
    if (!result.has_anchors) {
      result.boxes = most_boxes(request_.labels, samples).boxes;
      result.ranks_of_image = plan_.layout.spatial_parallel_size;
    }
    const auto levels = request_.layers.back().inputs.size();
    if (request_.step) {
      if (share_.stage().has_head())
        result.matches = request_.step->matches[micro_batch];
      return result;
    }
    // The bound puts all matches on the level with the largest map.
    result.matches.assign(levels, 0);
    result.matches.front() = share_.most_matches(samples);
    return result;
  }

  void add_targets() {
    const int64_t bound = share_.most_matches(share_.most_local_samples());
    const int64_t matches =
        request_.step ? request_.step->batch_matches : bound;
    estimate_.targets =
        share_.target_bytes(matches + request_.prefetched_batches * bound);
    // The targets in the rank's own rows are copied for the loss.
    if (share_.stage().has_head() && plan_.layout.spatial_parallel_size > 1)
      estimate_.targets += share_.target_bytes(matches);
  }

  const MemoryRequest& request_;
  const RankShare share_;
  const plan::Plan& plan_;
  MemoryEstimate estimate_;
};

}  // namespace

MemoryEstimate estimate_rank_memory(const MemoryRequest& request,
                                    const plan::MeshCoordinates& rank) {
  return MemoryEstimator(request, rank).run();
}

std::vector<MemoryEstimate> estimate_memory(const MemoryRequest& request) {
  std::vector<MemoryEstimate> stages;
  for (int stage = 0; stage < request.plan.layout.pipeline_parallel_size;
       ++stage) {
    plan::MeshCoordinates first;
    first.pipeline_stage = stage;
    stages.push_back(estimate_rank_memory(request, first));
  }
  return stages;
}

int64_t match_capacity(const MemoryRequest& request, int64_t samples) {
  return most_matches(most_boxes(request.labels, samples).boxes,
                      request.layers.back().anchors);
}

int64_t largest_total(const std::vector<MemoryEstimate>& stages) {
  int64_t largest = 0;
  for (const MemoryEstimate& stage : stages)
    largest = std::max(largest, stage.total());
  return largest;
}

StepRequest rank_step(const MemoryRequest& request,
                      const plan::MeshCoordinates& rank) {
  return MemoryEstimator(request, rank).step();
}

StepTimeline step_timeline(const MemoryRequest& request,
                           const plan::MeshCoordinates& rank) {
  StepTimeline timeline;
  timeline.peak_bytes = estimate_rank_memory(request, rank).total();
  timeline.parts = step_parts(rank_step(request, rank));
  int64_t fullest = 0;
  for (const PartMemory& part : timeline.parts)
    fullest = std::max(fullest, part.kept_bytes + part.scratch_bytes);
  // The remaining peak memory counts as state: it is held during the whole
  // step, for example by a captured graph.
  timeline.state_bytes = timeline.peak_bytes - fullest;
  for (PartMemory& part : timeline.parts)
    part.kept_bytes += timeline.state_bytes;
  return timeline;
}

RankMicroBatch rank_micro_batch(const MemoryRequest& request,
                                const plan::MeshCoordinates& rank) {
  return MemoryEstimator(request, rank).micro_batch(0);
}

namespace {

constexpr int kSteps = 2;

std::vector<int64_t> pieces_between_steps(const MemoryRequest& request,
                                          const MemoryEstimate& bytes) {
  std::vector<int64_t> pieces = {
      bytes.parameters,    bytes.gradients,  bytes.accumulated_gradients,
      bytes.average,       bytes.statistics, bytes.targets,
      bytes.communication, bytes.workspace};
  for (int64_t i = 0; i < request.num_moments; ++i)
    pieces.push_back(bytes.moments / request.num_moments);
  return pieces;
}

}  // namespace

SegmentEstimate estimate_segments(const MemoryRequest& request,
                                  const plan::MeshCoordinates& rank,
                                  int64_t limit) {
  CachingAllocator allocator(limit);
  SegmentEstimate estimate;
  for (const int64_t piece :
       pieces_between_steps(request, estimate_rank_memory(request, rank))) {
    if (piece > 0 && !allocator.allocate(piece)) estimate.fits = false;
  }
  const StepRequest step = rank_step(request, rank);
  for (int i = 0; i < kSteps && estimate.fits; ++i)
    estimate.fits = replay_step(step, allocator);
  estimate.tensor_bytes = allocator.peak_requested_bytes();
  estimate.segment_bytes = allocator.peak_reserved_bytes();
  estimate.retries = allocator.retries();
  return estimate;
}

}  // namespace headroom::predict
