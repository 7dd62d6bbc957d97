#include "worker/model/weight_gradient_stream.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include <utility>

#include "parallel/base/check.h"

namespace headroom::model {

WeightGradientStream::WeightGradientStream(c10::Device device)
    : device_(device),
      stream_(c10::impl::VirtualGuardImpl(device.type())
                  .getStreamFromGlobalPool(device)) {}

c10::Stream WeightGradientStream::current() const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

void WeightGradientStream::order(const c10::Stream& from,
                                 const c10::Stream& to) const {
  c10::Event reached(device_.type());
  reached.record(from);
  reached.block(to);
}

void WeightGradientStream::run(std::vector<at::Tensor> inputs,
                               const std::function<void()>& add) {
  HEADROOM_CHECK(!under_way_, "two gradients beside each other");
  if (!std::exchange(ends_with_join_, true)) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] {
      ends_with_join_ = false;
      join();
    });
  }
  // If `add` throws, the inputs are held until abandon().
  under_way_ = std::move(inputs);
  order(current(), stream_);
  const c10::StreamGuard beside(stream_);
  add();
}

void WeightGradientStream::join() {
  if (!under_way_) return;
  order(stream_, current());
  under_way_.reset();
}

void WeightGradientStream::abandon() noexcept {
  ends_with_join_ = false;
  if (!under_way_) return;
  try {
    order(stream_, current());
  } catch (const c10::Error&) {
    // A device that has failed does no more work.
  }
  under_way_.reset();
}

}  // namespace headroom::model
