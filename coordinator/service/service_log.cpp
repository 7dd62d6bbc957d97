// The service and its log: what is written down, and what a coordinator that is
// started again makes of it.
#include <utility>

#include "coordinator/log/run_state_snapshot.h"
#include "coordinator/service/service.h"
#include "coordinator/service/status_messages.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "proto/convert.h"
#include "proto/version.h"

namespace headroom::coordinator {
namespace {

// For workers and agents to find the way back, on top of the usual time
// between heartbeats.
constexpr std::chrono::milliseconds kReadoption = std::chrono::seconds(5);
// As many events as the log keeps when it is compacted: as the coordinator
// does.
constexpr size_t kLoggedEvents = EventLog::kMaxEvents;

}  // namespace

void CoordinatorService::restore() {
  if (!log_) return;
  const std::optional<LoggedRun>& found = log_->found();
  if (!found) {
    save_snapshot();
    return;
  }
  const TimePoint now = clock_.now();
  RunStateSnapshot::restore(state_, found->snapshot.state(), now, kReadoption);
  if (found->progress) {
    const wire::RunProgress progress = wire::from_wire(*found->progress);
    state_.committed(progress.step, progress);
  }
  for (const wire::LoggedOrder& order : found->snapshot.orders()) {
    newest_orders_[order.worker_id()] = order;
  }
  term_ = found->snapshot.term() + 1;
  for (const auto& [key, value] : found->keys) keys_.publish(key, value);
  keys_generation_ = state_.generation().number;
  std::vector<std::string> lines;
  for (const wire::Event& event : found->events) {
    lines.push_back(wire::to_json_line(events_.restore(from_wire(event))));
  }
  event_file_.add_unwritten(std::move(lines));
  wire::EventRecord record;
  record.event = "coordinator_restart";
  record.step = RunStateSnapshot::progress_of(state_).step;
  record.reason =
      "the coordinator was started again and goes on with generation " +
      std::to_string(state_.generation().number) + ", start " +
      std::to_string(term_);
  record.warning = true;
  deliver_event(record);
  save_snapshot();
}

bool CoordinatorService::is_readopted(const std::string& worker_id,
                                      const std::string& node_id) const {
  // A live coordinator loses a worker with its stream: who has joined and has
  // none was left by the coordinator before.
  const Member* member = state_.membership().find(worker_id);
  return member != nullptr && member->state == MemberState::kJoined &&
         member->node_id == node_id;
}

void CoordinatorService::send_again(const std::string& worker_id,
                                    int64_t last_order, Watcher& watcher) {
  const auto newest = newest_orders_.find(worker_id);
  if (newest == newest_orders_.end() || newest->second.number() <= last_order) {
    return;
  }
  Order order;
  order.kind = static_cast<Order::Kind>(newest->second.kind());
  order.worker_id = worker_id;
  order.reason = newest->second.reason();
  watcher.queue.push_back(assignment_for(order));
  watcher.queue.back().set_order(newest->second.number());
}

int64_t CoordinatorService::number_order(const Order& order) {
  wire::LoggedOrder& entry = newest_orders_[order.worker_id];
  entry.set_worker_id(order.worker_id);
  entry.set_number(entry.number() + 1);
  entry.set_kind(static_cast<int>(order.kind));
  entry.set_reason(order.reason);
  return entry.number();
}

wire::LogSnapshot CoordinatorService::snapshot() const {
  wire::LogSnapshot snapshot;
  snapshot.set_run_config_yaml(identity_.run_config_yaml);
  snapshot.set_run_directory(identity_.run_directory);
  snapshot.set_resume_checkpoint(identity_.resume_checkpoint);
  snapshot.set_term(term_);
  *snapshot.mutable_state() = RunStateSnapshot::of(state_);
  for (const auto& [worker_id, order] : newest_orders_) {
    *snapshot.add_orders() = order;
  }
  return snapshot;
}

void CoordinatorService::save_snapshot() {
  with_log([&] { log_->save(snapshot()); });
}

void CoordinatorService::sync_log() {
  // Without the mutex: a slow disk delays nobody's answer.
  with_log([&] { log_->sync(); });
  if (!log_ || log_failed_ || !log_->wants_compaction()) return;
  std::lock_guard lock(mutex_);
  LoggedRun run;
  run.snapshot = snapshot();
  run.progress = wire::to_wire(RunStateSnapshot::progress_of(state_));
  for (const wire::EventRecord& event : events_.newest(kLoggedEvents)) {
    run.events.push_back(to_wire(event));
  }
  run.keys = keys_.values();
  with_log([&] { log_->compact(run); });
}

void CoordinatorService::with_log(const std::function<void()>& write) {
  if (!log_ || log_failed_) return;
  try {
    write();
  } catch (const Error& error) {
    log_failed_ = true;
    log_->give_up();
    log::warn(std::string(error.what()) +
              "; the run goes on, but no longer outlives its coordinator");
  }
}

}  // namespace headroom::coordinator
