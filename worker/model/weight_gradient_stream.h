// WeightGradientStream: computes the gradients of convolution weights on a
// second stream of the device, beside the backward of the next block.
//
// Backward is a chain of maps' gradients, and no map's gradient depends on a
// weight's. The gradient of a weight is bound by arithmetic, the passes of
// batch norm by memory, so a device can run them at the same time.
//
//   run()    queues a weight's gradient behind the current stream's work
//   join()   lets the current stream wait for this gradient, frees its inputs
//            and calls the parameter's hook
//
// At most one gradient is under way. The next block calls join() after its
// batch norm; the last gradient is joined at the end of LibTorch's backward.
// Inputs stay in memory until then, because their memory belongs to the current
// stream, which would use it again. Both streams may be captured in a graph.
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

// Calls the hook that autograd calls after it has accumulated a gradient.
void tell_that_gradient_is_ready(const at::Tensor& parameter);

class WeightGradientStream {
 public:
  explicit WeightGradientStream(c10::Device device);
  ~WeightGradientStream() { abandon(); }
  WeightGradientStream(const WeightGradientStream&) = delete;
  WeightGradientStream& operator=(const WeightGradientStream&) = delete;

  // `add` queues the work that adds the gradient to parameter.grad(); it reads
  // `inputs`. REQUIRES: called inside of a backward, after join().
  void run(const at::Tensor& parameter, std::vector<at::Tensor> inputs,
           const std::function<void()>& add);
  void join();
  // Forgets the gradient of a failed backward.
  void abandon() noexcept;

 private:
  struct UnderWay {
    at::Tensor parameter;
    std::vector<at::Tensor> inputs;
  };
  // Lets `to` wait for the work that is queued on `from`.
  void order(const c10::Stream& from, const c10::Stream& to) const;
  c10::Stream current() const;

  const c10::Device device_;
  const c10::Stream stream_;
  std::optional<UnderWay> under_way_;
  bool ends_with_join_ = false;  // the engine calls join() after this backward
};

}  // namespace headroom::model
