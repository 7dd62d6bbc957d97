// CudaGraphRunner: a micro-batch's forward, loss and backward, and where one
// rank decides alone the step's end, captured once as one graph of the device
// (parallel/devices/device_api.h) and replayed from then on: the host hands the
// card one graph in place of hundreds of kernels.
//
// What changes from step to step comes through buffers: the images, the packed
// targets, which have room for the most matches that the labels admit, the
// numbers of the loss (worker/loss/device_loss.h), and those of the step's end
// (worker/step/device_state.h), which only the last micro-batch's let happen.
//
//   prepare()  these into the graph's buffers, while the device still works on
//              what it was given before: the host has only the step's end to
//              tell when it knows how the last one ended
//   run()      what is not there yet; the loss takes part in autograd
//   backward   the graph, which adds the parameters' gradients to the flat
//              buffer, and the items to the step's, and may end the step
//
// A shape is captured when it has been seen kWarmUps times in a row: libraries
// choose their algorithms in its first runs. Another shape releases the graph
// and is run as it is, so that there is never memory for two; targets that need
// more room are run as they are beside it.
//
// REQUIRES: parameters, gradients and statistics that stay where they are;
// nothing in the layers that communicates or that the host waits for
// (parallel/plan/plan.h); backward with a gradient of 1.
//
// Ownership: owns the graph and its memory; borrows nothing between calls.
// A capture that fails is ended and released, and micro-batches run as they are
// from then on: failure() says why.
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
#include "worker/loss/packed_targets.h"
#include "worker/model/step_context.h"

namespace headroom::step {

class CudaGraphRunner {
 public:
  static constexpr int kWarmUps = 2;

  // REQUIRES: a device. The thread leaves its default stream.
  explicit CudaGraphRunner(const devices::ComputeDevice& device);
  ~CudaGraphRunner();

  struct Inputs {
    at::Tensor loaded;                 // the images' bytes, perhaps packed
    std::vector<int64_t> image_sizes;  // [n, H, W, C]
    // Fills a map [n, C, H, W] on the device with them, or makes one.
    std::function<at::Tensor(const std::optional<at::Tensor>& into)> map;
    // Sends the images that are loaded next, while the device computes.
    std::function<void()> send_following;
    at::Tensor images;  // the map that is made or filled
    loss::PackedTargets targets;
    at::Tensor scales;
    at::Tensor end;          // DeviceState::packed; undefined without an end
    bool ends_step = false;  // what `end` says
  };
  // Computes, on the device, the scalar whose backward runs.
  using Forward = std::function<at::Tensor(const Inputs& inputs)>;
  // Given to the device after backward; null: nothing is.
  using End = std::function<void(const Inputs& inputs)>;
  // Returns the loss of `inputs`, which have no images yet and lie on the host.
  // `forward` is the loss in that context; until release(), calls with the same
  // sizes and groups must mean the same one, and the same `end`, which is the
  // caller's where the micro-batch runs as it is.
  at::Tensor run(Inputs inputs, const model::StepContext& context,
                 const Forward& forward, const End& end);

  // Puts into the graph's buffers what the next run() is expected to be given,
  // but for its end. Nothing is done where that would not replay the graph.
  // Takes no memory of the device.
  void prepare(const Inputs& inputs, const model::StepContext& context);

  // Called before the first micro-batch of a step.
  void begin_step() { has_ended_step_ = false; }
  // Whether a graph has ended it.
  bool has_ended_step() const { return has_ended_step_; }

  // Frees the graph with its memory and forgets the shapes.
  void release();

  // How many graphs have been captured since the start.
  int64_t num_captures() const { return num_captures_; }
  // Micro-batches whose targets needed more room than the graph's.
  int64_t num_overfull() const { return num_overfull_; }
  // Why nothing is captured any more; none where nothing failed.
  const std::optional<std::string>& failure() const { return failure_; }
  // Returns, once, the peak of the device's memory before the newest capture,
  // which counts anew; 0 afterwards.
  int64_t take_peak_before_capture() {
    return std::exchange(peak_before_capture_, 0);
  }

  struct Graph;

 private:
  // Whether the buffers hold these already.
  bool is_prepared(const Inputs& inputs) const;
  void fill(const Inputs& inputs);
  // Returns false, and sets failure_, where it could not.
  bool captures(const Inputs& inputs, const Forward& forward, const End& end);
  void capture(const Inputs& inputs, const Forward& forward, const End& end);
  Inputs on_device(const Inputs& inputs) const;

  const devices::ComputeDevice device_;
  const at::Tensor anchor_;     // what makes the loss part of autograd's graph
  const at::Tensor one_;        // the gradient that backward begins with
  std::vector<int64_t> shape_;  // the newest run's sizes and groups' bounds
  int runs_ = 0;                // how often that shape ran in a row
  std::unique_ptr<Graph> graph_;
  // What its buffers hold for the next run, on the host; undefined: nothing.
  struct Prepared {
    at::Tensor loaded, targets, scales;
  };
  Prepared prepared_;
  bool has_ended_step_ = false;
  std::optional<std::string> failure_;
  int64_t num_captures_ = 0;
  int64_t num_overfull_ = 0;
  int64_t peak_before_capture_ = 0;
};

}  // namespace headroom::step
