#include "deploy/launch/event_follower.h"

#include <utility>

#include "parallel/base/check.h"

namespace headroom {

EventFollower::EventFollower(const std::string& coordinator)
    : client_(ControlClient::connect(coordinator)),
      thread_([this] { follow(); }) {}

EventFollower::~EventFollower() { thread_.join(); }

std::vector<EventRecord> EventFollower::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

std::optional<RunStatus> EventFollower::final_status() const {
  std::lock_guard lock(mutex_);
  return final_status_;
}

void EventFollower::follow() {
  try {
    client_->stream_events(0, [this](const EventRecord& event) {
      const bool is_last = event.event == kRunOverEvent;
      std::optional<RunStatus> status;
      if (is_last) status = client_->status();
      std::lock_guard lock(mutex_);
      events_.push_back(event);
      if (is_last) final_status_ = std::move(status);
      return !is_last;
    });
  } catch (const Error&) {
    // The coordinator is gone; whoever watches its process says why.
  }
}

}  // namespace headroom
