// EventFollower: a thread that follows a run's events until its end.
//
// Threads: take() and final_status() from any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/service/control_client.h"

namespace headroom::cli {

class EventFollower {
 public:
  explicit EventFollower(const std::string& coordinator);
  // Waits for the stream to end: stop the coordinator first. Until then a
  // stream that breaks is opened anew, after the last event.
  ~EventFollower();

  // The events since the last call, old ones first.
  std::vector<wire::EventRecord> take();
  // The status at the run's end, once it has ended.
  std::optional<coordinator::RunStatus> final_status() const;

 private:
  void follow();

  std::unique_ptr<coordinator::ControlClient> client_;
  mutable std::mutex mutex_;  // guards the two below
  std::vector<wire::EventRecord> events_;
  std::optional<coordinator::RunStatus> final_status_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace headroom::cli
