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

// Of two plans the simpler one is taken unless the other is faster than that.
inline constexpr double kEqualWithin = 0.05;

struct DeviceSpeed {
  double work_per_second = 1;        // in the unit of TimedLayer
  double link_bytes_per_second = 1;  // to a peer
  double link_latency_seconds = 0;   // of one message
};

struct TimedLayer {
  // Work of forward and backward under its policy, per pixel of one image, in
  // any unit.
  double work_per_pixel = 0;
  int64_t parameters = 0;
  int64_t channels = 0;  // of its output
  int64_t stride = 1;    // pixels per cell of its output
  // Rows that its convolutions and poolings wider than a cell read of a
  // neighbour's part, times their channels.
  int64_t halo_channel_rows = 0;
  int64_t halo_exchanges = 0;  // as many messages to each neighbour
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

struct StepEstimate {
  double compute = 0;        // seconds
  double communication = 0;  // seconds
  double total() const { return compute + communication; }
};

// REQUIRES: as estimate_memory().
StepEstimate estimate_step(const TimeRequest& request);

}  // namespace headroom::predict
