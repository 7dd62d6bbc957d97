// GroupCommit: delays answers until the reported changes are on disk. One write
// of the run's state serves all calls that arrived during the previous write,
// so a large run, whose state is slow to write, needs few writes.
//
// Threads: its own thread starts the delayed actions. The service's mutex is
// held in add(), and not in stop().
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "coordinator/service/message_stream.h"
#include "coordinator/service/run_journal.h"

namespace headroom::coordinator {

class GroupCommit {
 public:
  // Both arguments must outlive this object.
  GroupCommit(std::mutex& mutex, RunJournal& journal);
  ~GroupCommit() { stop(); }
  GroupCommit(const GroupCommit&) = delete;
  GroupCommit& operator=(const GroupCommit&) = delete;

  // Takes the delayed actions of `after` and starts them once all decisions so
  // far are on disk. `is_awaited`: false if the write may come later.
  void add(AfterUnlock& after, bool is_awaited = true);

  // Returns when all decisions are written and all actions started. From then
  // on add() writes at once and leaves the actions in `after`.
  void stop();

 private:
  using Time = std::chrono::steady_clock::time_point;
  void run();

  std::mutex& mutex_;
  RunJournal& journal_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> put_off_;
  bool is_wanted_ = false;
  bool is_awaited_ = false;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace headroom::coordinator
