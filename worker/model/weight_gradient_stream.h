// WeightGradientStream: computes the gradients of convolution weights on a
// second stream of the device, beside the backward of the next block.
//
// Backward is a chain of maps' gradients, and no map's gradient depends on a
// weight's. The gradient of a weight is bound by arithmetic, the passes of
// batch norm by memory, so a device can run them at the same time.
//
//   run()    queues a weight's gradient behind the current stream's work
//   join()   lets the current stream wait for this gradient and frees its
//            inputs
//
// At most one gradient is under way. The next block calls join() after its
// batch norm; the last gradient is joined at the end of LibTorch's backward.
// Inputs stay in memory until then, because their memory belongs to the current
// stream, which would use it again. Both streams may be captured in a graph.
//
// LibTorch calls a parameter's hook before its gradient is joined, so nothing
// may read gradients from a hook: only a rank without replicas uses this.
//
// The same kernels run in the same order on each stream, so no bit of a result
// changes.
//
// Threads: the one that runs backward. Errors: after a failed backward call
// abandon().
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>
#include <vector>

namespace headroom::model {

class WeightGradientStream {
 public:
  explicit WeightGradientStream(c10::Device device);
  ~WeightGradientStream() { abandon(); }
  WeightGradientStream(const WeightGradientStream&) = delete;
  WeightGradientStream& operator=(const WeightGradientStream&) = delete;

  // `add` queues the work that adds a gradient; it reads `inputs`. REQUIRES:
  // called inside of a backward, after join().
  void run(std::vector<at::Tensor> inputs, const std::function<void()>& add);
  void join();
  // Forgets the gradient of a failed backward.
  void abandon() noexcept;

 private:
  // Lets `to` wait for the work that is queued on `from`.
  void order(const c10::Stream& from, const c10::Stream& to) const;
  c10::Stream current() const;

  const c10::Device device_;
  const c10::Stream stream_;
  // The inputs of the gradient that is under way.
  std::optional<std::vector<at::Tensor>> under_way_;
  bool ends_with_join_ = false;  // the engine calls join() after this backward
};

}  // namespace headroom::model
