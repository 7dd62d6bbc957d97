// Estimates roughly how long a step of a plan takes, to compare plans before
// anything runs.
//
//   compute        the work of a rank's layers, forward and backward: the time
//                  of the slowest stage, once for each micro-batch and, because
//                  the pipeline fills and drains, once more for each other
//                  stage (Narayanan et al., "Efficient Large-Scale Language
//                  Model Training on GPU Clusters", 2021)
//   communication  gradients over the replicas (a ring moves 2 (n - 1) / n of
//                  them; ZeRO 3 gathers its weights twice more), maps between
//                  stages, halo rows and batch-norm sums between the ranks of
//                  an image, each message with its latency; on cards also the
//                  copies of state that only one rank has
//
// The model assumes no overlap, so its seconds only rank plans. Plans that
// differ by less than 5 % count as equal (kEqualWithin).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel/plan/plan.h"

namespace headroom::predict {

// Assumptions about a GPU, for plans made on a machine without one. A compute
// capability of 8.0 is written 80.

// Whether LibTorch from PyPI has code for this GPU. Its CUDA 13 builds have
// code for 7.5, 8.0, 8.6, 9.0, 10.0 and 12.0; code also runs on later minor
// versions of the same major one.
bool wheel_has_code_for(int compute_capability);

// GPU memory that tensors cannot use, for plans made without the GPU. A run
// measures the real values (worker/memory/device_footprint.h).
//
// The CUDA context with the loaded libraries, as measured on an H200.
inline constexpr int64_t kGpuContextBytes = int64_t{518} << 20;
// The share of the card's memory that is reserved for errors of plans, whose
// predictions are at most 5 % below what is measured (deploy/guide/gpu.md). It
// also covers workspaces of convolutions, which depend on the card.
inline constexpr int64_t kGpuMarginPercent = 5;
// Used if the number of GPUs and their links are unknown.
inline constexpr int64_t kGpuCommunicationBytes = int64_t{1} << 28;

// The card's bytes available to tensors; at least 0.
int64_t tensor_budget(int64_t gpu_memory_bytes, int64_t communication_bytes);

// The simpler of two plans is chosen unless the other is faster by more than
// this share.
inline constexpr double kEqualWithin = 0.05;

struct Link {
  double bytes_per_second = 1;  // in one direction
  double latency_seconds = 0;   // one message's delay
};

// The link for what goes through the memory of the host and a socket: measured
// for maps of megabytes between two processes over loopback.
inline constexpr Link kThroughHost{.bytes_per_second = 1e9,
                                   .latency_seconds = 2e-4};

// The time that the host needs to start a sum on a card, which waits for other
// work of the card: a call of NCCL and two events.
inline constexpr double kSecondsToStartSum = 80e-6;

// What messages between two cards can have of their link: two of NCCL's
// channels (parallel/cuda/nccl_limits.h) carry about this, and the host starts
// each as it starts a sum. An assumption; nothing was measured.
inline constexpr Link kMessagesOfCards{.bytes_per_second = 40e9,
                                       .latency_seconds = kSecondsToStartSum};
inline Link slower_of(const Link& a, const Link& b) {
  return {std::min(a.bytes_per_second, b.bytes_per_second),
          std::max(a.latency_seconds, b.latency_seconds)};
}

struct DeviceSpeed {
  double work_per_second = 1;  // unit: see TimedLayer
  Link sums = {};              // for gradients and statistics
  Link messages = {};          // for maps and rows between two ranks
  Link copies = kThroughHost;  // for state, on cards
  // true on cards: a sum of statistics also takes kSecondsToStartSum, and a
  // peer gets copies of the state that only one rank has. A CPU needs less time
  // for both, which is not counted.
  bool is_card = false;
};

struct TimedLayer {
  // Work of forward and backward under the layer's policy, per pixel of one
  // image, in any unit.
  double work_per_pixel = 0;
  int64_t parameters = 0;
  int64_t channels = 0;  // channels of its output
  int64_t stride = 1;    // pixels per cell of its output
  // Rows that convolutions and poolings wider than one cell read from a
  // neighbour's part, times their channels.
  int64_t halo_channel_rows = 0;
  int64_t halo_exchanges = 0;  // messages to each neighbour
  int64_t norm_layers = 0;
  std::vector<int> inputs;  // layer numbers; -1 is the image
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

// Seconds of one step on the ranks of a pipeline stage.
struct StageTime {
  double compute = 0;  // all micro-batches
  double gradients = 0;
  double statistics = 0;       // sums of groups that data ranks share
  int64_t num_statistics = 0;  // such sums of a rank
  double image = 0;            // rows and sums between the ranks of an image
  double maps = 0;             // exchanges between stages
  // Copies of state that no other rank has, beyond the compute that hides them;
  // on cards.
  double copies = 0;
};

struct StepEstimate {
  std::vector<StageTime> stages;
  double compute = 0;        // seconds
  double communication = 0;  // seconds
  // The part of `communication` due to exchanges of batch-norm groups that data
  // ranks share, and the number of these exchanges of a rank.
  double statistics = 0;
  int64_t num_statistics = 0;
  double total() const { return compute + communication; }
};

// REQUIRES: as estimate_memory().
StepEstimate estimate_step(const TimeRequest& request);

}  // namespace headroom::predict
