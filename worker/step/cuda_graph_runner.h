// CudaGraphRunner: the forward of a micro-batch's layers, and their backward,
// each captured once as a graph of the device (device_graph.h) and replayed
// from then on: the host hands the card two graphs in place of a thousand
// kernels.
//
// The loss stays outside: how many boxes match changes with every micro-batch.
//
//   run()      the images into the graph's input, the forward's graph; its
//              heads take part in autograd
//   backward   the heads' gradients into the graph's, the backward's graph,
//              which adds the parameters' gradients to the flat buffer
//
// A shape is captured when it has been seen kWarmUps times in a row: libraries
// choose their algorithms in its first runs. Another shape lets go of the
// graphs and is run as it is; so there is never memory of two.
//
// REQUIRES: parameters, gradients and statistics that stay where they are;
// nothing in the layers that communicates or that the host waits for
// (parallel/plan/capture_rule.h).
//
// Ownership: owns graphs and their memory; borrows nothing between calls.
// Threads: the one that trains.
// Errors: c10::OutOfMemoryError out of run() and out of backward; release()
// is the caller's then.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/devices/compute_device.h"
#include "worker/model/step_context.h"

namespace headroom::step {

class CudaGraphRunner {
 public:
  static constexpr int kWarmUps = 2;

  // REQUIRES: a device. The thread leaves its default stream.
  explicit CudaGraphRunner(const devices::ComputeDevice& device);
  ~CudaGraphRunner();

  using RunLayers =
      std::function<std::vector<at::Tensor>(const at::Tensor& images)>;
  // The heads of `images`. `layers` is their forward in that context; all calls
  // with the same sizes and groups mean the same one until release().
  std::vector<at::Tensor> run(at::Tensor images,
                              const model::StepContext& context,
                              const RunLayers& layers);

  // Graphs and their memory go; shapes are new again.
  void release();

  // Since the start.
  int64_t num_captures() const { return num_captures_; }
  // Of the device's memory before the newest capture, which counts anew; 0
  // after it has been asked for.
  int64_t take_peak_before_capture() {
    return std::exchange(peak_before_capture_, 0);
  }

  struct Graphs;

 private:
  void capture(const at::Tensor& images, const RunLayers& layers);

  const devices::ComputeDevice device_;
  const at::Tensor anchor_;     // what makes heads part of autograd's graph
  std::vector<int64_t> shape_;  // of the newest run: sizes, groups' bounds
  int runs_ = 0;                // of that shape, in a row
  std::unique_ptr<Graphs> graphs_;
  int64_t num_captures_ = 0;
  int64_t peak_before_capture_ = 0;
};

}  // namespace headroom::step
