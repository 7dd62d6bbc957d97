#include "coordinator/service/run_journal.h"

#include <chrono>
#include <utility>

#include "coordinator/log/run_state_snapshot.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "proto/convert.h"

namespace headroom::coordinator {

namespace {

constexpr std::chrono::seconds kRetryInterval{5};

}  // namespace

RunJournal::RunJournal(const RunIdentity& identity, const RunState& state,
                       const MemberSecrets& secrets,
                       std::unique_ptr<RunLog> log)
    : identity_(identity),
      state_(state),
      secrets_(secrets),
      log_(std::move(log)) {
  const LoggedRun* run = found();
  if (run == nullptr) return;
  term_ = run->snapshot.term() + 1;
  for (const wire::LoggedOrder& order : run->snapshot.orders()) {
    newest_orders_[order.worker_id()] = order;
  }
}

const LoggedRun* RunJournal::found() const {
  return log_ && log_->found() ? &*log_->found() : nullptr;
}

wire::EventRecord RunJournal::restart_event() const {
  wire::EventRecord record;
  record.event = EventKind::kCoordinatorRestart;
  record.step = RunStateSnapshot::progress_of(state_).step;
  record.reason =
      cat("the coordinator was started again and goes on with generation ",
          state_.generation().number, ", start ", term_);
  if (!log_->torn_end().empty()) record.reason += "; " + log_->torn_end();
  record.warning = true;
  return record;
}

int64_t RunJournal::add_order(const Order& order) {
  wire::LoggedOrder& entry = newest_orders_[order.worker_id];
  entry.set_worker_id(order.worker_id);
  entry.set_number(entry.number() + 1);
  entry.set_kind(static_cast<int>(order.kind));
  entry.set_reason(order.reason);
  return entry.number();
}

const wire::LoggedOrder* RunJournal::newest_order(
    const std::string& worker_id) const {
  const auto newest = newest_orders_.find(worker_id);
  return newest == newest_orders_.end() ? nullptr : &newest->second;
}

wire::LogSnapshot RunJournal::snapshot() const {
  wire::LogSnapshot snapshot;
  snapshot.set_run_config_yaml(identity_.run_config_yaml);
  snapshot.set_run_directory(identity_.run_directory);
  snapshot.set_resume_checkpoint(identity_.resume_checkpoint);
  snapshot.set_term(term_);
  *snapshot.mutable_state() = RunStateSnapshot::of(state_);
  for (const auto& [worker_id, order] : newest_orders_) {
    *snapshot.add_orders() = order;
  }
  for (const auto& [node_id, secret] : secrets_.by_node()) {
    wire::LoggedSecret* entry = snapshot.add_secrets();
    entry->set_node_id(node_id);
    entry->set_secret(secret);
  }
  return snapshot;
}

void RunJournal::save() {
  write([&] { log_->save(snapshot()); });
}

void RunJournal::add(const wire::LogRecord& record) {
  write([&] { log_->add(record); });
}

void RunJournal::sync() {
  const std::lock_guard lock(sync_mutex_);
  write([&] { log_->sync(); });
}

bool RunJournal::wants_compaction(TimePoint now) {
  if (!log_) return false;
  if (!has_failed_) {
    if (log_->leads_here()) return log_->wants_compaction();
    tell("the coordinator's log was moved or removed: it is written anew");
    return true;
  }
  if (now < next_try_) return false;
  next_try_ = now + kRetryInterval;
  return true;
}

std::vector<wire::EventRecord> RunJournal::take_news() {
  std::lock_guard lock(news_mutex_);
  return std::exchange(news_, {});
}

void RunJournal::tell(const std::string& reason) {
  wire::EventRecord record;
  record.event = EventKind::kCoordinatorLog;
  record.step = RunStateSnapshot::progress_of(state_).step;
  record.reason = reason;
  record.warning = true;
  std::lock_guard lock(news_mutex_);
  news_.push_back(record);
}

void RunJournal::compact(const EventLog& events, const RendezvousKeys& keys) {
  LoggedRun run;
  run.snapshot = snapshot();
  run.progress =
      wire::to_message<wire::Progress>(RunStateSnapshot::progress_of(state_));
  for (const wire::EventRecord& event : events.newest(EventLog::kMaxEvents)) {
    run.events.push_back(wire::to_wire(event));
  }
  run.keys = keys.values();
  const std::lock_guard lock(sync_mutex_);
  const bool was_given_up = has_failed_.exchange(false);
  try {
    log_->compact(run);
    if (was_given_up) {
      tell("the coordinator's log is written again: the run outlives it");
    }
  } catch (const Error& error) {
    give_up(error, !was_given_up);
  }
}

void RunJournal::give_up(const Error& error, bool is_new) {
  has_failed_ = true;
  log_->give_up();
  if (!is_new) return;
  tell(std::string(error.what()) +
       "; the run goes on, but does not outlive its coordinator until the "
       "log can be written");
}

void RunJournal::write(const std::function<void()>& body) {
  if (!log_ || has_failed_) return;
  try {
    body();
  } catch (const Error& error) {
    give_up(error, /*is_new=*/true);
  }
}

}  // namespace headroom::coordinator
