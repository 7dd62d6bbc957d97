// What waits, and what is delivered to it: orders, events, keys, the end.
#include <algorithm>
#include <iterator>
#include <utility>

#include "coordinator/service/message_stream.h"
#include "coordinator/service/pending_lookup.h"
#include "coordinator/service/service.h"
#include "coordinator/service/status_messages.h"
#include "parallel/base/log.h"
#include "proto/convert.h"
#include "proto/version.h"

namespace headroom::coordinator {

void CoordinatorService::tick() {
  std::vector<std::string> lines;
  {
    AfterUnlock after;
    std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    state_.tick(now);
    deliver(after);
    save_snapshot();
    lines = std::exchange(unwritten_, {});
    if (state_.everybody_told(now, followers_.empty()) && !everybody_told_) {
      everybody_told_ = true;
      over_changed_.notify_all();
    }
  }
  event_file_.add(lines);
  event_file_.write();
  sync_log();
}

void CoordinatorService::deliver(AfterUnlock& after) {
  const TimePoint now = clock_.now();
  deliver_orders(after);
  for (const wire::EventRecord& record : state_.take_events())
    deliver_event(record);
  for (Follower& follower : followers_) follower.stream->pump(after);

  if (state_.phase() != RunPhase::kRunning) {
    end_lookups(after, grpc::Status(grpc::StatusCode::ABORTED,
                                    "the run is " + to_string(state_.phase()) +
                                        ": " + state_.reason()));
  }
  for (auto entry = lookups_.begin(); entry != lookups_.end();) {
    PendingLookup* lookup = *entry;
    const std::string* value = keys_.find(lookup->key());
    if (value == nullptr && now < lookup->deadline()) {
      ++entry;
      continue;
    }
    lookup->response().set_found(value != nullptr);
    if (value != nullptr) lookup->response().set_value(*value);
    after.add([lookup] { lookup->Finish(grpc::Status::OK); });
    entry = lookups_.erase(entry);
  }
}

void CoordinatorService::deliver_orders(AfterUnlock& after) {
  for (const Order& order : state_.take_orders()) {
    // A generation starts with an empty map.
    if (order.kind == Order::Kind::kRun &&
        keys_generation_ != state_.generation().number) {
      keys_.clear();
      keys_generation_ = state_.generation().number;
    }
    const int64_t number = number_order(order);
    const auto watcher = watchers_.find(order.worker_id);
    if (watcher == watchers_.end()) continue;
    watcher->second.queue.push_back(assignment_for(order));
    watcher->second.queue.back().set_order(number);
    // While its own Watch is being answered there is no stream yet.
    if (watcher->second.stream != nullptr) watcher->second.stream->pump(after);
  }
}

void CoordinatorService::deliver_event(const wire::EventRecord& record) {
  const wire::EventRecord& kept = events_.append(record, wire::utc_now());
  unwritten_.push_back(wire::to_json_line(kept));
  with_log([&] { log_->add(to_wire(kept)); });
  log::write(kept.warning ? log::Level::kWarn : log::Level::kInfo,
             kept.event + ": " + kept.reason);
}

void CoordinatorService::end_lookups(AfterUnlock& after,
                                     const grpc::Status& status) {
  for (PendingLookup* lookup : lookups_) {
    after.add([lookup, status] { lookup->Finish(status); });
  }
  lookups_.clear();
}

wire::Assignment CoordinatorService::assignment_for(const Order& order) const {
  const Generation& generation = state_.generation();
  wire::Assignment message;
  message.mutable_stamp()->set_generation(generation.number);
  message.mutable_stamp()->set_run_digest(identity_.run_digest);
  message.set_reason(order.reason);
  switch (order.kind) {
    case Order::Kind::kRun:
      message.set_action(wire::ACTION_RUN);
      break;
    case Order::Kind::kSaveAndExit:
      message.set_action(wire::ACTION_SAVE_AND_EXIT);
      break;
    case Order::Kind::kExit:
      message.set_action(wire::ACTION_EXIT);
      break;
  }
  const RankedMember* member = generation.find(order.worker_id);
  if (member == nullptr) return message;  // sent home before the first
  message.set_rank(member->rank);
  message.set_local_rank(member->local_rank);
  message.set_local_world_size(member->local_world_size);
  message.set_world_size(static_cast<int>(generation.members.size()));
  *message.mutable_plan() = wire::to_wire(generation.plan);
  message.set_run_config_yaml(identity_.run_config_yaml);
  message.set_run_directory(identity_.run_directory);
  const bool begins_anew = generation.begin.checkpoint.empty();
  message.set_resume_checkpoint(begins_anew ? identity_.resume_checkpoint
                                            : generation.begin.checkpoint);
  message.set_resume_steps(generation.begin.committed_steps);
  return message;
}

RunStatus CoordinatorService::status_locked() const {
  constexpr size_t kNewestEvents = 20;
  RunStatus status = state_.status(clock_.now());
  status.version = wire::kVersion;
  status.run_digest = identity_.run_digest;
  status.events = events_.newest(kNewestEvents);
  return status;
}

RunStatus CoordinatorService::status() {
  std::lock_guard lock(mutex_);
  return status_locked();
}

std::map<std::string, int64_t> CoordinatorService::refused_calls() {
  std::lock_guard lock(mutex_);
  return guard_.refused();
}

void CoordinatorService::drain(const std::string& reason) {
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  state_.drain(clock_.now(), reason);
  deliver(after);
  save_snapshot();
}

bool CoordinatorService::wait_until_over(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return over_changed_.wait_for(lock, timeout,
                                [&] { return everybody_told_ || closed_; });
}

void CoordinatorService::close() {
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  closed_ = true;
  over_changed_.notify_all();
  end_lookups(after, grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                  "the coordinator is ending"));
  for (auto& [worker_id, watcher] : watchers_) {
    watcher.stream->close(after, grpc::Status::OK);
  }
  for (Follower& follower : followers_) {
    follower.stream->close(after, grpc::Status::OK);
  }
}

}  // namespace headroom::coordinator
