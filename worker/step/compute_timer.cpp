#include "worker/step/compute_timer.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>

namespace headroom::step {

struct ComputeTimer::Events {
  explicit Events(c10::Device on) : device(on), guard(on.type()) {
    begin.record(guard.getStream(device));
  }
  const c10::Device device;
  const c10::impl::VirtualGuardImpl guard;
  // LibTorch's own events have no time; the backend's default kind has.
  c10::Event begin{device.type(), c10::EventFlag::BACKEND_DEFAULT};
  c10::Event end{device.type(), c10::EventFlag::BACKEND_DEFAULT};
};

ComputeTimer::ComputeTimer(const devices::ComputeDevice& device)
    : events_(device.device().is_cuda()
                  ? std::make_unique<Events>(device.device())
                  : nullptr),
      begin_(PeerWait::processor_time()) {}

ComputeTimer::~ComputeTimer() = default;

void ComputeTimer::stop() {
  if (events_) {
    events_->end.record(events_->guard.getStream(events_->device));
    return;
  }
  const PeerWait::ProcessorTime now = PeerWait::processor_time();
  seconds_ = std::chrono::duration<double>((now.in_all - begin_.in_all) -
                                           (now.in_waits - begin_.in_waits))
                 .count();
}

double ComputeTimer::seconds() const {
  constexpr double kMillisecond = 1e-3;
  if (!events_) return seconds_;
  return events_->end.query()
             ? kMillisecond * events_->begin.elapsedTime(events_->end)
             : 0;
}

}  // namespace headroom::step
