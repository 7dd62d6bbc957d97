// EventFollower: a thread that collects a run's events until the run ends.
//
// Threads: call take() and final_status() from any thread.
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
  // Waits for the stream to end, so stop the coordinator first. A stream that
  // breaks before the destructor is called is opened again and continues after
  // the last event.
  ~EventFollower();

  // Returns the events since the last call, oldest first.
  std::vector<wire::EventRecord> take();
  // The status at the end of the run; nullopt before the end.
  std::optional<coordinator::RunStatus> final_status() const;

 private:
  void follow();

  std::unique_ptr<coordinator::ControlClient> client_;
  mutable std::mutex mutex_;  // guards the next two members
  std::vector<wire::EventRecord> events_;
  std::optional<coordinator::RunStatus> final_status_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace headroom::cli
