#include "coordinator/service/delivery.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "parallel/base/log.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "proto/convert.h"

namespace headroom::coordinator {

namespace {

grpc::ByteBuffer bytes_of(const wire::LookupResponse& response) {
  grpc::ByteBuffer bytes;
  bool owns_bytes = true;
  static_cast<void>(grpc::SerializationTraits<wire::LookupResponse>::Serialize(
      response, &bytes, &owns_bytes));
  return bytes;
}

}  // namespace

// A Lookup that waits for its keys. It is removed from the list by the
// publisher of the last key, by the tick thread after its time, by the client's
// cancellation, or by the run's end. The code that removes a lookup also
// finishes it, after the mutex is released; so it is finished only once. A
// lookup deletes itself when gRPC no longer needs it; gRPC keeps the response
// until then.
class Delivery::PendingLookup final : public grpc::ServerUnaryReactor {
 public:
  using Waiting = std::multimap<std::string, PendingLookup*>;

  PendingLookup(std::mutex& mutex, Waiting& waiting,
                wire::LookupRequest request, TimePoint deadline,
                grpc::ByteBuffer& response)
      : mutex_(mutex),
        waiting_(waiting),
        request_(std::move(request)),
        deadline_(deadline),
        response_(response) {}

  TimePoint deadline() const { return deadline_; }
  bool wants_one_key() const { return request_.count() <= 0; }
  const std::string& key() const { return request_.key(); }
  // Takes the values of several keys. Returns false if a key is missing;
  // awaited() then returns this key.
  bool take_all(const RendezvousKeys& keys) {
    // Copies values only when all keys are published, because many ranks may
    // wait for many keys.
    for (; num_there_ < request_.count(); ++num_there_) {
      await(cat(request_.key(), num_there_));
      if (keys.find(awaited_) == nullptr) return false;
    }
    wire::LookupResponse values;
    for (int64_t i = 0; i < request_.count(); ++i) {
      const std::string key = cat(request_.key(), i);
      const std::string* value = keys.find(key);
      if (value == nullptr) {  // the keys were cleared after the check above
        num_there_ = i;
        await(key);
        return false;
      }
      values.add_values(*value);
    }
    values.set_found(true);
    fill(bytes_of(values));
    return true;
  }
  void await(std::string key) { awaited_ = std::move(key); }
  const std::string& awaited() const { return awaited_; }
  void fill(const grpc::ByteBuffer& answer) { response_ = answer; }
  void answer(AfterUnlock& after) {
    after.add([this] { Finish(grpc::Status::OK); });
  }
  void answer_without_values(AfterUnlock& after) {
    fill(bytes_of(wire::LookupResponse()));
    answer(after);
  }

 private:
  void OnCancel() override {
    {
      std::lock_guard lock(mutex_);
      const auto [begin, end] = waiting_.equal_range(awaited_);
      const auto own = std::find_if(
          begin, end, [this](const auto& one) { return one.second == this; });
      if (own == end) return;
      waiting_.erase(own);
    }
    Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

  int64_t num_there_ = 0;  // the first so many keys are published
  std::mutex& mutex_;
  Waiting& waiting_;
  const wire::LookupRequest request_;
  const TimePoint deadline_;
  grpc::ByteBuffer& response_;
  std::string awaited_;
};

std::vector<std::string> Delivery::restore(const LoggedRun& run) {
  for (const auto& [key, value] : run.keys) keys_.publish("", key, value);
  keys_generation_ = state_.generation().number;
  std::vector<std::string> lines;
  for (const wire::Event& event : run.events) {
    lines.push_back(
        wire::to_json_line(events_.restore(wire::from_wire(event))));
    newest_reports_[event.reporter()] = event.report();
  }
  return lines;
}

void Delivery::deliver(TimePoint now, AfterUnlock& after) {
  deliver_orders(after);
  for (const wire::EventRecord& record : state_.take_events())
    add_event(record);
  for (Follower& follower : followers_) follower.stream->pump(after);
  if (state_.phase() != RunPhase::kRunning) {
    end_lookups(after,
                status_of(Refusal{RefusalKind::kStale,
                                  "the run is " + to_string(state_.phase()) +
                                      ": " + state_.reason()}));
  }
  answer_lookups(after);
  end_late_lookups(now, after);
}

void Delivery::deliver_orders(AfterUnlock& after) {
  for (const Order& order : state_.take_orders()) {
    // Every generation starts with no keys.
    if (order.kind == Order::Kind::kRun &&
        keys_generation_ != state_.generation().number) {
      keys_.clear();
      answers_.clear();
      keys_generation_ = state_.generation().number;
    }
    const int64_t number = journal_.add_order(order);
    const auto watcher = watchers_.find(order.worker_id);
    if (watcher == watchers_.end()) continue;
    watcher->second.queue.push_back(assignment_for(order));
    watcher->second.queue.back().set_order(number);
    // A worker has no stream yet while its Watch call is being accepted.
    if (watcher->second.stream != nullptr) watcher->second.stream->pump(after);
  }
}

std::optional<std::string> Delivery::publish(const std::string& member,
                                             const std::string& key,
                                             const std::string& value) {
  auto why = keys_.publish(member, key, value);
  if (why) return why;
  published_.push_back(key);
  answers_.erase(key);  // the key may have had another value
  return std::nullopt;
}

void Delivery::answer_lookups(AfterUnlock& after) {
  for (const std::string& key : std::exchange(published_, {})) {
    // If other keys of a lookup are missing, the lookup waits for the next
    // missing key.
    const auto [begin, end] = lookups_.equal_range(key);
    std::vector<PendingLookup*> waiting;
    for (auto entry = begin; entry != end; ++entry) {
      waiting.push_back(entry->second);
    }
    lookups_.erase(begin, end);
    for (PendingLookup* lookup : waiting) answer_or_wait(lookup, after);
  }
}

void Delivery::end_late_lookups(TimePoint now, AfterUnlock& after) {
  constexpr std::chrono::milliseconds kOften{50};
  if (now - looked_for_late_ < kOften) return;
  looked_for_late_ = now;
  for (auto entry = lookups_.begin(); entry != lookups_.end();) {
    if (now < entry->second->deadline()) {
      ++entry;
      continue;
    }
    entry->second->answer_without_values(after);
    entry = lookups_.erase(entry);
  }
}

void Delivery::end_lookups(AfterUnlock& after, const grpc::Status& status) {
  for (const auto& [key, lookup] : lookups_) {
    after.add([lookup = lookup, status] { lookup->Finish(status); });
  }
  lookups_.clear();
}

void Delivery::close(AfterUnlock& after) {
  end_lookups(after, grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                  "the coordinator is ending"));
  for (auto& [worker_id, watcher] : watchers_) {
    watcher.stream->close(after, grpc::Status::OK);
  }
  for (Follower& follower : followers_) {
    follower.stream->close(after, grpc::Status::OK);
  }
}

bool Delivery::add_worker(const std::string& worker_id) {
  const auto [entry, is_new] = watchers_.try_emplace(worker_id);
  if (!is_new) return false;
  wire::Assignment welcome;
  welcome.mutable_stamp()->set_run_digest(identity_.run_digest);
  welcome.set_action(wire::ACTION_WAIT);
  entry->second.queue.push_back(std::move(welcome));
  return true;
}

void Delivery::send_again(const std::string& worker_id, int64_t last_order) {
  const wire::LoggedOrder* newest = journal_.newest_order(worker_id);
  if (newest == nullptr || newest->number() <= last_order) return;
  Order order;
  order.kind = static_cast<Order::Kind>(newest->kind());
  order.worker_id = worker_id;
  order.reason = newest->reason();
  Watcher& watcher = watchers_.at(worker_id);
  watcher.queue.push_back(assignment_for(order));
  watcher.queue.back().set_order(newest->number());
}

grpc::ServerWriteReactor<wire::Assignment>* Delivery::open_stream(
    const std::string& worker_id, std::function<void(AfterUnlock&)> closed,
    AfterUnlock& after) {
  Watcher& watcher = watchers_.at(worker_id);
  watcher.stream = new AssignmentStream(
      mutex_,
      [&watcher](wire::Assignment* next) {
        if (watcher.queue.empty()) return false;
        *next = std::move(watcher.queue.front());
        watcher.queue.pop_front();
        return true;
      },
      [this, worker_id, closed = std::move(closed)](AfterUnlock& after_close) {
        remove_worker(worker_id);
        closed(after_close);
      });
  watcher.stream->pump(after);
  return watcher.stream;
}

void Delivery::add_event(const wire::EventRecord& record) {
  const wire::EventRecord& kept = events_.append(record, utc_now());
  event_lines_.push_back(wire::to_json_line(kept));
  wire::LogRecord logged;
  *logged.mutable_event() = wire::to_wire(kept);
  journal_.add(logged);
  log::write(kept.warning ? log::Level::kWarn : log::Level::kInfo,
             to_string(kept.event) + ": " + kept.reason);
}

void Delivery::add_report(const wire::EventRecord& record) {
  int64_t& newest = newest_reports_[record.reporter];
  if (record.report <= newest && record.report > 0) return;
  newest = record.report;
  add_event(record);
}

std::vector<std::string> Delivery::take_event_lines() {
  return std::exchange(event_lines_, {});
}

std::optional<std::string> Delivery::follower_error(
    const std::string& peer) const {
  constexpr size_t kMost = 256, kMostOfPeer = 8;
  const auto of_peer = static_cast<size_t>(
      std::count_if(followers_.begin(), followers_.end(),
                    [&](const Follower& other) { return other.peer == peer; }));
  if (followers_.size() < kMost && of_peer < kMostOfPeer) return std::nullopt;
  return cat(followers_.size(), " follow the events, ", of_peer,
             " of them over this connection; at most ", kMost, " and ",
             kMostOfPeer, " may");
}

grpc::ServerWriteReactor<wire::Event>* Delivery::follow_events(
    const std::string& peer, int64_t after_sequence, AfterUnlock& after) {
  const auto follower = followers_.emplace(followers_.end());
  follower->peer = peer;
  follower->last_sequence = after_sequence;
  follower->stream = new EventStream(
      mutex_,
      [this, follower](wire::Event* next) {
        const wire::EventRecord* record =
            events_.next_after(follower->last_sequence);
        if (record == nullptr) return false;
        follower->last_sequence = record->sequence;
        *next = wire::to_wire(*record);
        return true;
      },
      [this, follower](AfterUnlock&) { followers_.erase(follower); });
  follower->stream->pump(after);
  return follower->stream;
}

grpc::ServerUnaryReactor* Delivery::look_up(wire::LookupRequest request,
                                            TimePoint now,
                                            std::chrono::milliseconds wait,
                                            grpc::ByteBuffer& response,
                                            AfterUnlock& after) {
  auto* lookup = new PendingLookup(mutex_, lookups_, std::move(request),
                                   now + wait, response);
  if (wait > wait.zero()) {
    answer_or_wait(lookup, after);
  } else if (take(*lookup)) {
    lookup->answer(after);
  } else {
    lookup->answer_without_values(after);
  }
  return lookup;
}

bool Delivery::take(PendingLookup& lookup) {
  if (!lookup.wants_one_key()) return lookup.take_all(keys_);
  lookup.await(lookup.key());
  const std::string* value = keys_.find(lookup.key());
  if (value == nullptr) return false;
  const auto [known, is_new] = answers_.try_emplace(lookup.key());
  if (is_new) {
    wire::LookupResponse answer;
    answer.set_found(true);
    answer.set_value(*value);
    known->second = bytes_of(answer);
  }
  lookup.fill(known->second);
  return true;
}

void Delivery::answer_or_wait(PendingLookup* lookup, AfterUnlock& after) {
  if (take(*lookup)) {
    lookup->answer(after);
  } else {
    lookups_.emplace(lookup->awaited(), lookup);
  }
}

void Delivery::describe_generation() {
  const Generation& generation = state_.generation();
  if (generation_told_ == generation.number) return;
  generation_told_ = generation.number;
  std::set<std::string> agents;
  for (const RankedMember& one : generation.members) {
    // A worker that was replaced is no longer a member.
    const Member* member = state_.membership().find(one.worker_id);
    if (member != nullptr) agents.insert(member->node_id);
  }
  const bool begins_anew = generation.begin.checkpoint.empty();
  common_ = wire::to_message<wire::Assignment>(wire::RankAssignment{
      .rank = 0,
      .local_rank = 0,
      .local_world_size = 1,
      .world_size = static_cast<int>(generation.members.size()),
      .has_one_agent = agents.size() == 1,
      .keeps_state = generation.keeps_state,
      .plan = generation.plan,
      .run_config_yaml = state_.settled_config_yaml().empty()
                             ? identity_.run_config_yaml
                             : state_.settled_config_yaml(),
      .run_directory = identity_.run_directory,
      .resume_checkpoint = begins_anew ? identity_.resume_checkpoint
                                       : generation.begin.checkpoint,
      .resume_steps = generation.begin.committed_steps});
  for (const std::string& uuid : state_.cards().left_out_uuids()) {
    common_.add_left_out_cards(uuid);
  }
}

// The card on which the worker's predecessor failed; "" if there is none.
std::string Delivery::card_of(const std::string& worker_id) const {
  const Member* member = state_.membership().find(worker_id);
  if (member == nullptr) return "";
  const CardFailure* failure =
      state_.cards().newest_of(member->node_id, member->local_slot);
  return failure == nullptr ? "" : failure->fault.card.uuid;
}

wire::Assignment Delivery::assignment_for(const Order& order) {
  const Generation& generation = state_.generation();
  const RankedMember* member = generation.find(order.worker_id);
  wire::Assignment message;
  // A worker outside the generation gets an order without rank and plan.
  if (member != nullptr) {
    describe_generation();
    message = common_;
    message.set_rank(member->rank);
    message.set_local_rank(member->local_rank);
    message.set_local_world_size(member->local_world_size);
    message.set_card_uuid(card_of(order.worker_id));
    if (const Member* own = state_.membership().find(order.worker_id)) {
      message.set_node_id(own->node_id);
    }
    *message.mutable_folder() =
        wire::to_message<wire::FolderPlace>(state_.folder());
  }
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
  return message;
}

}  // namespace headroom::coordinator
