#include "deploy/cli/process/event_follower.h"

#include <utility>

#include "parallel/base/check.h"

namespace headroom::cli {

EventFollower::EventFollower(const std::string& coordinator)
    : client_(coordinator::ControlClient::connect(coordinator)),
      thread_([this] { follow(); }) {}

EventFollower::~EventFollower() {
  ending_ = true;
  thread_.join();
}

std::vector<wire::EventRecord> EventFollower::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

std::optional<coordinator::RunStatus> EventFollower::final_status() const {
  std::lock_guard lock(mutex_);
  return final_status_;
}

void EventFollower::follow() {
  int64_t last = 0;
  bool is_over = false;
  const auto take = [&](const wire::EventRecord& event) {
    last = event.sequence;
    is_over = event.event == EventKind::kRunOver;
    std::optional<coordinator::RunStatus> status;
    if (is_over) status = client_->status();
    std::lock_guard lock(mutex_);
    events_.push_back(event);
    if (is_over) final_status_ = std::move(status);
    return !is_over;
  };
  while (!ending_ && !is_over) {
    try {
      client_->stream_events(last, take);
      return;  // the coordinator has ended
    } catch (const Error&) {
      // The connection is broken. The supervisor reports the coordinator's exit
      // and restarts it; the stream is then opened again.
      is_over = false;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

}  // namespace headroom::cli
