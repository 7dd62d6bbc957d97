// GroupCommit: answers wait here until what they report is on disk. One write
// of the run's state serves all calls that came during the one before it, so
// that a large run, whose state takes long to write, has few of them.
//
// Threads: one of its own, which starts what was put off. The service's mutex
// is held in add(), and not in stop().
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
  // Both must outlive it.
  GroupCommit(std::mutex& mutex, RunJournal& journal);
  ~GroupCommit() { stop(); }
  GroupCommit(const GroupCommit&) = delete;
  GroupCommit& operator=(const GroupCommit&) = delete;

  // Takes the calls that `after` has put off, and starts them once all
  // decisions until now are on disk. Without such calls the write may come
  // later.
  void add(AfterUnlock& after, bool is_awaited = true);

  // Everything is written and started when it returns; from then on add()
  // writes by itself, and leaves what was put off where it is.
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
