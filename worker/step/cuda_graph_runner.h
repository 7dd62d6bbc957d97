// CudaGraphRunner: captures a micro-batch once as one graph of the device
// (parallel/devices/device_api.h) and replays it from then on. The host then
// starts one graph instead of hundreds of kernels. The graph contains forward,
// loss, backward and, for a rank alone on a device
// (worker/step/step_commit.h), the end of the step. Sums over ranks are not
// captured: they start behind the graph.
//
// Data that changes from step to step is copied into the graph's buffers: the
// images, the packed targets (with room for the most matches that the labels
// allow), the factors of the loss (worker/loss/device_loss.h) and the arguments
// of the step's end (worker/step/device_state.h).
//
//   prepare()  copies the next micro-batch into the buffers while the device
//              still computes, except the arguments of the step's end, which
//              are not known yet
//   run()      copies the inputs that are missing; returns a loss that autograd
//              can differentiate
//   backward   replays the graph, which adds the gradients to the flat buffer
//              and the loss items to the step's items, and may end the step
//
// A shape is captured after kWarmUps consecutive runs, because libraries choose
// their algorithms in the first runs. A micro-batch of another shape releases
// the graph and runs without one, so that memory never holds two graphs. A
// micro-batch whose targets do not fit into the buffers runs without the graph.
//
// REQUIRES: parameters, gradients and statistics are never reallocated; no
// layer communicates or makes the host wait (parallel/plan/plan.h); backward
// begins with a gradient of 1.
//
// Ownership: owns the graph and its memory; borrows no object between calls.
// After a failed capture all micro-batches run without a graph.
// Errors: c10::OutOfMemoryError in run() and in backward; the caller then calls
// release().
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

  // REQUIRES: a device other than the CPU. Switches the thread to a stream that
  // is not the default one.
  explicit CudaGraphRunner(const devices::ComputeDevice& device);
  ~CudaGraphRunner();

  struct MicroBatch {
    at::Tensor loaded;                 // the images' bytes, perhaps packed
    std::vector<int64_t> image_sizes;  // [n, H, W, C]
    // Makes the network's input [n, C, H, W] on the device from `loaded`, or
    // fills `into` with it.
    std::function<at::Tensor(const std::optional<at::Tensor>& into)> map;
    // Begins to copy the next micro-batch's images.
    std::function<void()> send_following;
    at::Tensor images;  // the network's input, made by `map`
    loss::PackedTargets targets;
    at::Tensor scales;
    at::Tensor end;  // DeviceState::packed(); undefined if graphs end no step
    bool ends_step = false;  // `end` commits the step
  };
  // Computes, on the device, the scalar whose backward runs.
  using Forward = std::function<at::Tensor(const MicroBatch& inputs)>;
  // Queues the step's end after backward; null if there is none.
  using End = std::function<void(const MicroBatch& inputs)>;
  // Returns the loss of `inputs`, which are on the host and have no map yet.
  // `forward` computes it in `context`. Until release(), calls with the same
  // sizes and groups must pass equivalent `forward` and `end`. If no graph ran,
  // the caller must run the end.
  at::Tensor run(MicroBatch inputs, const model::StepContext& context,
                 const Forward& forward, const End& end);

  // Copies the expected inputs of the next run() into the graph's buffers,
  // except the arguments of the step's end. If run() then gets other factors of
  // the loss, it copies those again. Does nothing if that run would not replay
  // the graph. Takes no memory of the device.
  void prepare(const MicroBatch& inputs, const model::StepContext& context);

  // Called before the first micro-batch of a step.
  void begin_step() { has_ended_step_ = false; }
  // Whether a graph has run the end of this step.
  bool has_ended_step() const { return has_ended_step_; }

  // Frees the graph with its memory and forgets the shapes.
  void release();

  // Messages for the user since the last call, each sent once: the first
  // captured graph, the first micro-batch too large for it, a failed capture.
  std::vector<std::string> take_news() { return std::exchange(news_, {}); }
  // Peak of the device's memory before the newest capture (a capture restarts
  // the measurement). Further calls return 0.
  int64_t take_peak_before_capture() {
    return std::exchange(peak_before_capture_, 0);
  }

  struct Graph;

 private:
  // Whether prepare() has copied these inputs, perhaps with other factors of
  // the loss.
  bool is_prepared(const MicroBatch& inputs) const;
  void fill(const MicroBatch& inputs);
  // Returns false if the capture failed.
  bool captures(const MicroBatch& inputs, const Forward& forward,
                const End& end);
  void capture(const MicroBatch& inputs, const Forward& forward,
               const End& end);
  MicroBatch on_device(const MicroBatch& inputs) const;

  const devices::ComputeDevice device_;
  const at::Tensor anchor_;     // makes the loss part of autograd's graph
  const at::Tensor one_;        // the gradient that backward begins with
  std::vector<int64_t> shape_;  // sizes and group bounds of the newest run
  int runs_ = 0;                // number of consecutive runs of shape_
  std::unique_ptr<Graph> graph_;
  // Host tensors that prepare() has copied; undefined before that.
  struct Prepared {
    at::Tensor loaded, targets, scales;
  };
  Prepared prepared_;
  bool has_ended_step_ = false;
  bool has_failed_ = false, has_captured_ = false, was_overfull_ = false;
  std::vector<std::string> news_;
  int64_t peak_before_capture_ = 0;
};

}  // namespace headroom::step
