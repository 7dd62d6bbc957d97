// RunJournal: writes the service's changes to the run's log
// (coordinator/log/run_log.h), and keeps each worker's newest order, which a
// restarted coordinator may have to send again.
//
// If writing the log fails, the log is given up and an event reports this. The
// run continues, but cannot survive its coordinator until a new log, which is
// tried every few seconds, replaces the old one. Without a log, nothing is
// written.
//
// Threads: the service's mutex is held in all calls except sync().
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/log/run_log.h"
#include "coordinator/run/clock.h"
#include "coordinator/run/rendezvous_keys.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/call_admission.h"
#include "coordinator/service/event_log.h"
#include "parallel/base/check.h"

namespace headroom::coordinator {

// The run's constants, sent to every worker and agent.
struct RunIdentity {
  std::string run_config_yaml;
  std::string run_directory;
  std::string resume_checkpoint;
  std::string run_digest;  // digest of the three fields above
};

class RunJournal {
 public:
  // `log` may be null. The other arguments must outlive the journal.
  RunJournal(const RunIdentity& identity, const RunState& state,
             const MemberSecrets& secrets, std::unique_ptr<RunLog> log);

  // The logged run to continue; null if there is none.
  const LoggedRun* found() const;
  // The event that reports the coordinator's restart and any records dropped at
  // the log's end. REQUIRES: found() is not null, and the state was restored.
  wire::EventRecord restart_event() const;

  // Numbers a worker's order (from 1) and stores it as the worker's newest one.
  int64_t add_order(const Order& order);
  // The worker's newest order; null before the first.
  const wire::LoggedOrder* newest_order(const std::string& worker_id) const;

  // Writes the state to the log if the state has changed. After the next sync()
  // the written state survives a power failure.
  void save();
  // Writes a commit's progress, an event or a key to the log.
  void add(const wire::LogRecord& record);
  // Called without the mutex, so that a slow disk delays no answer.
  void sync();
  // Whether compact() should rewrite the log, because most of it is outdated,
  // its file was moved, or the log was given up a while ago.
  bool wants_compaction(TimePoint now);
  void compact(const EventLog& events, const RendezvousKeys& keys);

  // Events about the log for users since the last call.
  std::vector<wire::EventRecord> take_news();

 private:
  void give_up(const Error& error, bool is_new);
  void tell(const std::string& reason);
  void write(const std::function<void()>& body);
  wire::LogSnapshot snapshot() const;

  const RunIdentity& identity_;
  const RunState& state_;
  const MemberSecrets& secrets_;
  const std::unique_ptr<RunLog> log_;  // may be null
  std::atomic<bool> has_failed_ = false;
  std::mutex sync_mutex_;  // prevents a sync while the log is replaced
  TimePoint next_try_;     // when to try again after giving up
  std::mutex news_mutex_;
  std::vector<wire::EventRecord> news_;
  uint64_t term_ = 1;
  // Each worker's newest order, by worker_id.
  std::map<std::string, wire::LoggedOrder> newest_orders_;
};

}  // namespace headroom::coordinator
