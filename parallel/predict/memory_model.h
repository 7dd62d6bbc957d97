// Computes the bytes of tensors that each rank of a plan needs, item by item,
// without allocating tensors.
//
//   between steps   parameters, gradients, accumulated gradients, moments,
//                   averages, statistics: split as ZeRO splits them
//   in a step       buffers kept by micro-batches in flight, and the rest of
//                   the peak, from a simulation operator by operator (step.h)
//   in addition     targets of the labels, slices exchanged under ZeRO
//
// The sum is a close upper bound of the bytes that the counting allocator
// measures (tests/integration/fit_test.cpp). phase_memory.h covers start-up,
// validation and checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/machine/processor.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/caching_allocator.h"
#include "parallel/predict/label_bound.h"
#include "parallel/predict/layers.h"
#include "parallel/predict/step.h"

namespace headroom::predict {

// The real sizes of a step once its labels are known; upper bounds are used
// before.
struct StepShape {
  int64_t global_size = 0;  // samples of the global batch
  int64_t image_height = 0;
  int64_t image_width = 0;
  // Matches in this rank's rows, by micro-batch and level.
  std::vector<std::vector<int64_t>> matches;
  // Matches in the whole images of this rank's batch.
  int64_t batch_matches = 0;
  bool operator==(const StepShape&) const = default;
};

// The real sizes of a validation batch that is evaluated at once.
struct ValidationShape {
  int64_t samples = 0;
  int64_t image_height = 0;
  int64_t image_width = 0;
  std::vector<int64_t> matches;  // matches in whole images, by level
  bool operator==(const ValidationShape&) const = default;
};

struct MemoryRequest {
  std::vector<layers::LayerCost> layers;
  // The layers of the teacher of distillation, all of which every rank holds;
  // empty if there is no teacher.
  std::vector<layers::LayerCost> teacher;
  plan::Plan plan;
  int64_t global_batch_size = 1;
  // Images of the data set (0 if unknown); an epoch's last batch may be
  // smaller.
  int64_t num_images = 0;
  int64_t image_height = 640;  // the network's largest input
  int64_t image_width = 640;
  int64_t validation_image_height = 0;  // 0 means the training size
  int64_t validation_image_width = 0;
  int64_t image_channels = 3;
  int64_t sample_bytes = 1;  // bytes per channel of a loaded pixel
  // Bytes per element of the state between steps.
  int64_t element_bytes = 4;
  int64_t map_bytes = 4;  // Bytes per element of a step's maps.
  // The next four fields are explained in MicroBatchShape.
  bool convolves_in_float = false;
  OnednnIsa onednn_isa = OnednnIsa::kAvx512;
  bool on_device = false;
  const ConvolutionWorkspaces* workspaces = nullptr;
  bool captures_micro_batches = false;  // worker/step/cuda_graph_runner.h
  // Whether a device kernel renders samples (parallel/base/device_scratch.h).
  bool renders_samples = false;
  int64_t num_moments = 1;  // optimizer values per parameter
  int64_t num_classes = 80;
  LabelBound labels;
  bool focal_loss = false;
  bool smooths_labels = false;
  int64_t num_threads = 1;  // threads per operator
  // prefetched batches whose targets are loaded
  int64_t prefetched_batches = 0;
  int64_t num_frozen_layers = 0;  // layers [0, n) are frozen
  // ZeRO 3 between hosts: the next layer's parameters are gathered while a
  // layer runs.
  bool fetches_ahead = false;
  bool resumes = false;  // the run starts from a checkpoint
  std::optional<StepShape> step;
  std::optional<ValidationShape> validation;

  bool operator==(const MemoryRequest&) const = default;
};

struct MemoryEstimate {
  int64_t parameters = 0;  // includes the teacher
  int64_t gradients = 0;
  int64_t accumulated_gradients = 0;
  int64_t moments = 0;
  int64_t average = 0;
  int64_t statistics = 0;  // batch norm's statistics, averages and sums
  // Input images of micro-batches in flight; on a device also the loaded bytes.
  int64_t images = 0;
  int64_t activations = 0;    // kept by micro-batches in flight, with loss
  int64_t transient = 0;      // rest of the running micro-batch at the peak
  int64_t communication = 0;  // slices exchanged under ZeRO
  int64_t targets = 0;        // the loss's targets, made from labels
  int64_t workspace = 0;      // votes, reports, single values

  int64_t total() const {
    return parameters + gradients + accumulated_gradients + moments + average +
           statistics + images + activations + transient + communication +
           targets + workspace;
  }
  bool operator==(const MemoryEstimate&) const = default;
};

// Memory of a step. REQUIRES: a plan whose batch split is valid (groups_error),
// image sizes that are multiples of the largest stride.
MemoryEstimate estimate_rank_memory(const MemoryRequest& request,
                                    const plan::MeshCoordinates& rank);

// Memory of the fullest rank of each stage: ranks of a stage differ by their
// share of the batch and of the image. Does not read request.step.
std::vector<MemoryEstimate> estimate_memory(const MemoryRequest& request);

// The number of matches per level that a captured micro-batch of `samples`
// samples has room for: the upper bound from the labels.
int64_t match_capacity(const MemoryRequest& request, int64_t samples);

int64_t largest_total(const std::vector<MemoryEstimate>& stages);

// The request with which the memory model simulates the rank's step.
StepRequest rank_step(const MemoryRequest& request,
                      const plan::MeshCoordinates& rank);

// A rank's bytes in each part of its step. kept_bytes includes the state
// between steps and all other bytes held outside the micro-batches.
struct StepTimeline {
  int64_t peak_bytes = 0;   // estimate_rank_memory()'s total
  int64_t state_bytes = 0;  // bytes also held between steps
  std::vector<PartMemory> parts;
};
StepTimeline step_timeline(const MemoryRequest& request,
                           const plan::MeshCoordinates& rank);

// The first micro-batch of a rank's full batch, for callers that need the costs
// of single layers (layer_costs).
struct RankMicroBatch {
  SimulatedStage stage;
  MicroBatchShape shape;
  LossShape loss;
  int64_t num_in_flight = 1;
};
RankMicroBatch rank_micro_batch(const MemoryRequest& request,
                                const plan::MeshCoordinates& rank);

// Bytes that a CUDA device's caching allocator reserves for a rank's steps.
// Segments exceed their tensors: requests are rounded up, and a segment is kept
// while any part of it is used. The CUDA context, communication buffers and
// library workspaces are not included (time_model.h has a reserve for them).
//
// The simulation allocates the state between steps first, each kind in one flat
// buffer, then runs two steps, because the second reuses the free pieces of the
// first. The simulation assumes that the worker releases its caches after
// start-up.

struct SegmentEstimate {
  int64_t tensor_bytes = 0;   // peak of requested bytes
  int64_t segment_bytes = 0;  // peak of reserved bytes
  int64_t retries = 0;        // releases of free segments because of the limit
  bool fits = true;
  bool operator==(const SegmentEstimate&) const = default;
};

// `limit`: the most bytes that all segments may have together.
SegmentEstimate estimate_segments(const MemoryRequest& request,
                                  const plan::MeshCoordinates& rank,
                                  int64_t limit = CachingAllocator::kNoLimit);

}  // namespace headroom::predict
