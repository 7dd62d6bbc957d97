// The bytes of tensors that each rank of a plan needs, item by item, without a
// tensor.
//
//   between steps   parameters, gradients, accumulated gradients, moments,
//                   averages, statistics: split as ZeRO splits them
//   in a step       what micro-batches in flight keep, and what is needed
//                   beyond that at the fullest point: the step is gone through
//                   operator by operator (step.h)
//   beside          targets of the labels, slices under ZeRO
//
// The sum is at least what the counting allocator measures, and little more:
// tests/integration/fit_test.cpp. What a rank needs outside its steps:
// phase_memory.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/base/processor.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/caching_allocator.h"
#include "parallel/predict/label_bound.h"
#include "parallel/predict/layers.h"
#include "parallel/predict/step.h"

namespace headroom::predict {

// What is known of a step once its labels are; before that, bounds are used.
struct StepShape {
  int64_t global_size = 0;  // samples of the global batch
  int64_t image_height = 0;
  int64_t image_width = 0;
  // Matches in this rank's image lines, by micro-batch and level.
  std::vector<std::vector<int64_t>> matches;
  // Matches of the rank's batch, of whole images.
  int64_t batch_matches = 0;
};

// What is known of the images of a validation batch that go through at once.
struct ValidationShape {
  int64_t samples = 0;
  int64_t image_height = 0;
  int64_t image_width = 0;
  std::vector<int64_t> matches;  // whole images' matches by level
  bool operator==(const ValidationShape&) const = default;
};

struct MemoryRequest {
  std::vector<ModelLayer> layers;
  // The network that the run learns from, which every rank has whole; empty
  // where there is none.
  std::vector<ModelLayer> teacher;
  plan::Plan plan;
  int64_t global_batch_size = 1;
  // The data set's, whose remainder is an epoch's last batch; 0: not known.
  int64_t num_images = 0;
  int64_t image_height = 640;  // the network's largest input
  int64_t image_width = 640;
  int64_t validation_image_height = 0;  // 0: as in training
  int64_t validation_image_width = 0;
  int64_t image_channels = 3;
  int64_t sample_bytes = 1;  // a loaded image's, per channel of a pixel
  // Bytes per element of the state kept between steps.
  int64_t element_bytes = 4;
  int64_t map_bytes = 4;  // Bytes per element of a step's maps.
  // These four are MicroBatchShape's.
  bool convolves_in_float = false;
  OnednnIsa onednn_isa = OnednnIsa::kAvx512;
  bool on_device = false;
  const ConvolutionWorkspaces* workspaces = nullptr;
  bool captures_micro_batches = false;  // worker/step/cuda_graph_runner.h
  // A kernel renders them on the device (parallel/base/device_scratch.h).
  bool renders_samples = false;
  int64_t num_moments = 1;  // the optimizer's, per parameter
  int64_t num_classes = 80;
  LabelBound labels;
  bool focal_loss = false;
  bool smooths_labels = false;
  int64_t num_threads = 1;         // an operator's threads
  int64_t prefetched_batches = 0;  // batches whose targets are there already
  int64_t num_frozen_layers = 0;   // layers [0, n) do not learn
  // ZeRO 3 between hosts: a layer's parameters are gathered while the one
  // before it runs.
  bool fetches_ahead = false;
  bool resumes = false;  // starts with a checkpoint
  std::optional<StepShape> step;
  std::optional<ValidationShape> validation;
};

struct MemoryEstimate {
  int64_t parameters = 0;  // a teacher's, too
  int64_t gradients = 0;
  int64_t accumulated_gradients = 0;
  int64_t moments = 0;
  int64_t average = 0;
  int64_t statistics = 0;  // batch norm's, with their average and sums
  // Images of micro-batches in flight, as the network's input; on a device also
  // as they were loaded.
  int64_t images = 0;
  int64_t activations = 0;    // kept by micro-batches in flight, loss included
  int64_t transient = 0;      // the running micro-batch's, at the peak
  int64_t communication = 0;  // slices under ZeRO
  int64_t targets = 0;        // the labels'
  int64_t workspace = 0;      // votes, reports, single values

  int64_t total() const {
    return parameters + gradients + accumulated_gradients + moments + average +
           statistics + images + activations + transient + communication +
           targets + workspace;
  }
  bool operator==(const MemoryEstimate&) const = default;
};

// What a step needs. REQUIRES: a plan whose batch split holds (groups_error),
// image sizes in multiples of the largest stride.
MemoryEstimate estimate_rank_memory(const MemoryRequest& request,
                                    const plan::MeshCoordinates& rank);

// What the fullest rank of each stage needs: ranks of a stage differ by their
// share of the batch and of the image. Does not read request.step.
std::vector<MemoryEstimate> estimate_memory(const MemoryRequest& request);

// Matches of each level that a captured micro-batch of so many samples has room
// for: the bound of its labels.
int64_t match_capacity(const MemoryRequest& request, int64_t samples);

// The fullest stage's total.
int64_t largest_total(const std::vector<MemoryEstimate>& stages);

// The rank's step as the model goes through it.
StepRequest rank_step(const MemoryRequest& request,
                      const plan::MeshCoordinates& rank);

// The bytes of a rank in each part of its step. The state between steps and
// what lies beside the micro-batches is in kept_bytes.
struct StepTimeline {
  int64_t peak_bytes = 0;   // estimate_rank_memory()'s total
  int64_t state_bytes = 0;  // bytes that are there between steps too
  std::vector<PartMemory> parts;
};
StepTimeline step_timeline(const MemoryRequest& request,
                           const plan::MeshCoordinates& rank);

// The first micro-batch of a rank's full batch as the model goes through it,
// for whoever wants its layers one by one (layer_costs).
struct RankMicroBatch {
  SimulatedStage stage;
  MicroBatchShape shape;
  LossShape loss;
  int64_t num_in_flight = 1;
};
RankMicroBatch rank_micro_batch(const MemoryRequest& request,
                                const plan::MeshCoordinates& rank);

// What the caching allocator of a CUDA device reserves for a rank's steps.
// Tensors are fewer bytes than their segments: requests are rounded up, and a
// segment stays while anything of it is used. The context, the buffers of
// communication and the libraries' workspaces are not in it (time_model.h has a
// reserve for them).
//
// The state between steps is asked for first, each kind in one flat buffer,
// then two steps, as the second one finds the pieces of the first; so it holds
// for a worker that releases its caches when start-up is done.

struct SegmentEstimate {
  int64_t tensor_bytes = 0;   // the most that is asked for at once
  int64_t segment_bytes = 0;  // the most that is reserved for it
  int64_t retries = 0;        // caches released, for the limit
  bool fits = true;
  bool operator==(const SegmentEstimate&) const = default;
};

// `limit` bytes of segments.
SegmentEstimate estimate_segments(const MemoryRequest& request,
                                  const plan::MeshCoordinates& rank,
                                  int64_t limit = CachingAllocator::kNoLimit);

}  // namespace headroom::predict
