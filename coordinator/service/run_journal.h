// RunJournal: what the service writes down in the run's log
// (coordinator/log/run_log.h), and each worker's newest order, which a
// coordinator that is started again may have to send once more.
//
// A log that cannot be written is given up, and an event reports it: the run
// goes on, but does not outlive its coordinator until a new log, which is tried
// every few seconds, replaces the old one. Without a log nothing is written.
//
// Threads: the service's mutex is held in all calls but sync().
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

// What every worker and agent is told of the run.
struct RunIdentity {
  std::string run_config_yaml;
  std::string run_directory;
  std::string resume_checkpoint;
  std::string run_digest;  // the digest of the three above
};

class RunJournal {
 public:
  // `log` may be null. The others must outlive the journal.
  RunJournal(const RunIdentity& identity, const RunState& state,
             const MemberSecrets& secrets, std::unique_ptr<RunLog> log);

  // The run that the log holds; null where there is none to go on with.
  const LoggedRun* found() const;
  // The event that a coordinator was started on it again, and which records at
  // its end were dropped. REQUIRES: found() is not null, and the state is
  // restored from it.
  wire::EventRecord restart_event() const;

  // Numbers an order, counted from 1 for each worker, and keeps it as its
  // newest.
  int64_t add_order(const Order& order);
  // The worker's newest order; null before the first.
  const wire::LoggedOrder* newest_order(const std::string& worker_id) const;

  // Writes the state down if it has changed. It outlives this process's machine
  // from the next sync() on.
  void save();
  void add(const wire::Progress& progress);
  void add(const wire::EventRecord& event);
  void add(const wire::LoggedKey& key);
  // Called without the mutex: a slow disk delays nobody's answer.
  void sync();
  // Whether most of the log is history, or it was given up a while ago;
  // compact() replaces it.
  bool wants_compaction(TimePoint now);
  void compact(const EventLog& events, const RendezvousKeys& keys);

  // News of the log for people, each once.
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
  std::mutex sync_mutex_;  // no file is synced while it is replaced
  TimePoint next_try_;     // the next try of a log that was given up
  std::mutex news_mutex_;
  std::vector<wire::EventRecord> news_;
  uint64_t term_ = 1;
  // Each worker_id's newest order.
  std::map<std::string, wire::LoggedOrder> newest_orders_;
};

}  // namespace headroom::coordinator
