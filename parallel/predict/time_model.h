// How long a step of a plan takes, roughly, so that plans can be compared
// before anything runs.
//
//   compute        the work of a rank's layers, forward and backward; the
//                  slowest stage counts, for each micro-batch and, while the
//                  pipeline fills and drains, once more per other stage
//                  (Narayanan et al., "Efficient Large-Scale Language Model
//                  Training on GPU Clusters", 2021)
//   communication  gradients over the replicas (a ring moves 2 (n - 1) / n of
//                  them; ZeRO 3 gathers its weights twice more), maps between
//                  stages, halo rows and batch-norm sums between the ranks of
//                  an image, each message with its latency
//
// Nothing is taken to overlap. So the seconds are an order, not a promise:
// plans that differ by less than 5 % are held to be equal (kEqualWithin).
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/plan/plan.h"

namespace headroom::predict {

// What a GPU offers a plan, on machines that need not be there. A compute
// capability of 8.0 is written 80.

// Does LibTorch from PyPI hold code that this GPU can run? Its builds for CUDA
// 13 hold 7.5, 8.0, 8.6, 9.0, 10.0 and 12.0; code runs on later minor versions
// of the same major one.
bool wheel_has_code_for(int compute_capability);

// The memory of a GPU that tensors cannot have, for plans that are made without
// one: the context with what libraries load, the largest workspace of a
// convolution; the communication's buffers (nccl_memory.h); and what the
// caching allocator cannot use. A run measures them
// (worker/memory/device_footprint.h).
inline constexpr int64_t kGpuContextBytes = int64_t{3} << 28;
inline constexpr int64_t kGpuWorkspaceBytes = int64_t{1} << 29;
inline constexpr int64_t kGpuReserveBytes =
    kGpuContextBytes + kGpuWorkspaceBytes;  // 1.25 GiB
// Where neither the number of GPUs nor their links are known.
inline constexpr int64_t kGpuCommunicationBytes = int64_t{1} << 28;
inline constexpr int64_t kGpuSlackPercent = 10;  // a share of the card

// The bytes of a card that are left for tensors; at least 0.
int64_t tensor_budget(int64_t gpu_memory_bytes, int64_t communication_bytes);

// Cells in an image's smallest map, as far as batch-norm groups are concerned:
// with two, none is too small to stand alone.
inline constexpr int64_t kManyCells = 2;

// The simpler one of two plans is taken unless the other is faster than that.
inline constexpr double kEqualWithin = 0.05;

struct DeviceSpeed {
  double work_per_second = 1;        // TimedLayer's unit
  double link_bytes_per_second = 1;  // the link to a peer
  double link_latency_seconds = 0;   // one message's delay
};

struct TimedLayer {
  // Work of forward and backward under its policy, per pixel of one image, in
  // any unit.
  double work_per_pixel = 0;
  int64_t parameters = 0;
  int64_t channels = 0;  // channels of its output
  int64_t stride = 1;    // pixels per cell of its output
  // Rows that its convolutions and poolings wider than a cell read of a
  // neighbour's part, times their channels.
  int64_t halo_channel_rows = 0;
  int64_t halo_exchanges = 0;  // messages to each neighbour
  int64_t norm_layers = 0;
  std::vector<int> inputs;  // layers; -1: the image
};

struct TimeRequest {
  std::vector<TimedLayer> layers;
  plan::Plan plan;
  int64_t global_batch_size = 1;
  int64_t image_height = 640;
  int64_t image_width = 640;
  int64_t element_bytes = 4;
  DeviceSpeed device;
};

// Seconds of a pipeline stage's ranks in a step.
struct StageTime {
  double compute = 0;  // all micro-batches
  double gradients = 0;
  double statistics = 0;  // sums of groups that span data ranks
  double image = 0;       // rows and sums between the ranks of an image
  double maps = 0;        // exchanges between stages
};

struct StepEstimate {
  std::vector<StageTime> stages;
  double compute = 0;        // seconds
  double communication = 0;  // seconds
  // The part that batch-norm groups that span data ranks cause, and their
  // exchanges.
  double statistics = 0;
  int64_t num_statistics = 0;
  double total() const { return compute + communication; }
};

// REQUIRES: as estimate_memory().
StepEstimate estimate_step(const TimeRequest& request);

}  // namespace headroom::predict
