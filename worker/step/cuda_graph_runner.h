// CudaGraphRunner: the forward of a micro-batch's layers, and their backward,
// each captured once as a graph of the device (parallel/devices/device_api.h)
// and replayed from then on: the host hands the card two graphs in place of a
// thousand kernels.
//
// The loss stays outside: how many boxes match changes with every micro-batch.
//
//   run()      the images into the graph's input, the forward's graph; its
//              heads take part in autograd
//   backward   the heads' gradients into the graph's, the backward's graph,
//              which adds the parameters' gradients to the flat buffer
//
// A shape is captured when it has been seen kWarmUps times in a row: libraries
// choose their algorithms in its first runs. Another shape releases the graphs
// and is run as it is, so that there is never memory for two.
//
// REQUIRES: parameters, gradients and statistics that stay where they are;
// nothing in the layers that communicates or that the host waits for
// (parallel/plan/plan.h).
//
// Ownership: owns graphs and their memory; borrows nothing between calls.
// A capture that fails is ended and released, and layers run as they are from
// then on: failure() says why.
//
// Errors: c10::OutOfMemoryError out of run() and out of backward; release()
// is the caller's then.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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
  // Returns the heads of `images`. `layers` is their forward in that context;
  // until release(), calls with the same sizes and groups must mean the same
  // one.
  std::vector<at::Tensor> run(at::Tensor images,
                              const model::StepContext& context,
                              const RunLayers& layers);

  // Frees the graphs with their memory and forgets the shapes.
  void release();

  // How many graphs have been captured since the start.
  int64_t num_captures() const { return num_captures_; }
  // Why nothing is captured any more; none where nothing failed.
  const std::optional<std::string>& failure() const { return failure_; }
  // Returns, once, the peak of the device's memory before the newest capture,
  // which counts anew; 0 afterwards.
  int64_t take_peak_before_capture() {
    return std::exchange(peak_before_capture_, 0);
  }

  struct Graphs;

 private:
  // Returns false, and sets failure_, where it could not.
  bool captures(const at::Tensor& images, const RunLayers& layers);
  void capture(const at::Tensor& images, const RunLayers& layers);

  const devices::ComputeDevice device_;
  const at::Tensor anchor_;     // what makes heads part of autograd's graph
  std::vector<int64_t> shape_;  // the newest run's sizes and groups' bounds
  int runs_ = 0;                // how often that shape ran in a row
  std::unique_ptr<Graphs> graphs_;
  std::optional<std::string> failure_;
  int64_t num_captures_ = 0;
  int64_t peak_before_capture_ = 0;
};

}  // namespace headroom::step
