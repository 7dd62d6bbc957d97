// Delivery: sends orders to workers, events to followers, and to each rank the
// rendezvous keys that other ranks published.
//
// Waiting clients need no thread: streams and lookups are gRPC reactors
// (message_stream.h), kept in lists.
//
// Threads: the service's mutex is held in every call. gRPC operations must not
// start while it is held, so each of them is put into the AfterUnlock.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/rendezvous_keys.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/event_log.h"
#include "coordinator/service/message_stream.h"
#include "coordinator/service/run_journal.h"
#include "proto/coordinator.grpc.pb.h"

namespace headroom::coordinator {

class Delivery {
 public:
  // All arguments must outlive the delivery.
  Delivery(std::mutex& mutex, const RunIdentity& identity, RunState& state,
           RunJournal& journal)
      : mutex_(mutex), identity_(identity), state_(state), journal_(journal) {}

  // Takes over the keys and events that an earlier coordinator logged. Returns
  // the events as lines of the event file, oldest first.
  std::vector<std::string> restore(const LoggedRun& run);

  // Sends new orders, events and keys, and ends lookups that waited too long.
  void deliver(TimePoint now, AfterUnlock& after);
  // Ends every stream and lookup.
  void close(AfterUnlock& after);

  // --- orders ---------------------------------------------------------------
  // Makes a worker's queue of assignments, which begins with ACTION_WAIT.
  // Returns false if the worker has a queue already.
  bool add_worker(const std::string& worker_id);
  void remove_worker(const std::string& worker_id) {
    watchers_.erase(worker_id);
  }
  // Sends the worker its newest order again, unless the worker has already
  // received it. `last_order` is the number of the last order that the worker
  // received.
  void send_again(const std::string& worker_id, int64_t last_order);
  // Opens the stream of the worker's queue. `closed` is called, with the mutex
  // held, when the client is gone. REQUIRES: add_worker().
  grpc::ServerWriteReactor<wire::Assignment>* open_stream(
      const std::string& worker_id, std::function<void(AfterUnlock&)> closed,
      AfterUnlock& after);

  // --- events ---------------------------------------------------------------
  void add_event(const wire::EventRecord& record);
  // Adds an event unless its reporter has sent it before: a reporter repeats a
  // call if the coordinator logged the event but died before its answer.
  void add_report(const wire::EventRecord& record);
  std::vector<wire::EventRecord> newest_events(size_t count) const {
    return events_.newest(count);
  }
  // Lines for the event file since the last call.
  std::vector<std::string> take_event_lines();
  bool has_event_lines() const { return !event_lines_.empty(); }
  // Returns why this peer may not follow events, with the numbers of followers
  // and their limits; nullopt if it may.
  std::optional<std::string> follower_error(const std::string& peer) const;
  grpc::ServerWriteReactor<wire::Event>* follow_events(const std::string& peer,
                                                       int64_t after_sequence,
                                                       AfterUnlock& after);
  bool has_followers() const { return !followers_.empty(); }

  // --- keys -----------------------------------------------------------------
  const RendezvousKeys& keys() const { return keys_; }
  const EventLog& events() const { return events_; }
  // Calls RendezvousKeys::publish(); deliver() answers waiting lookups.
  std::optional<std::string> publish(const std::string& member,
                                     const std::string& key,
                                     const std::string& value);
  // Answers when the requested keys are published, or without values after
  // `wait`. `response` gets a LookupResponse. All lookups of one key share its
  // bytes: with 4,096 ranks the value that each of them looks up has 70 KB, and
  // copies of it would take 285 MB at one time.
  grpc::ServerUnaryReactor* look_up(wire::LookupRequest request, TimePoint now,
                                    std::chrono::milliseconds wait,
                                    grpc::ByteBuffer& response,
                                    AfterUnlock& after);

 private:
  class PendingLookup;
  using AssignmentStream = MessageStream<wire::Assignment>;
  using EventStream = MessageStream<wire::Event>;
  struct Watcher {
    AssignmentStream* stream = nullptr;
    std::deque<wire::Assignment> queue;
  };
  struct Follower {
    EventStream* stream = nullptr;
    std::string peer;
    int64_t last_sequence = 0;
  };

  void deliver_orders(AfterUnlock& after);
  void answer_lookups(AfterUnlock& after);
  // Fills the answer of the lookup. Returns false if a key is missing.
  bool take(PendingLookup& lookup);
  void answer_or_wait(PendingLookup* lookup, AfterUnlock& after);
  void end_late_lookups(TimePoint now, AfterUnlock& after);
  void end_lookups(AfterUnlock& after, const grpc::Status& status);
  std::string card_of(const std::string& worker_id) const;
  wire::Assignment assignment_for(const Order& order);
  void describe_generation();

  std::mutex& mutex_;
  const RunIdentity& identity_;
  RunState& state_;
  RunJournal& journal_;
  RendezvousKeys keys_;
  uint64_t keys_generation_ = 0;
  // By key, the cached answer to a request for this key only. Made at the first
  // such request.
  std::map<std::string, grpc::ByteBuffer> answers_;
  EventLog events_;
  // The number of each reporter's newest report.
  std::map<std::string, int64_t> newest_reports_;
  std::vector<std::string> event_lines_;
  std::map<std::string, Watcher> watchers_;  // keyed by worker_id
  std::list<Follower> followers_;
  // Waiting lookups, by the key for which each waits.
  std::multimap<std::string, PendingLookup*> lookups_;
  std::vector<std::string> published_;  // published since the last deliver()
  TimePoint looked_for_late_;
  // The part of the newest generation's assignment that all members share.
  wire::Assignment common_;
  uint64_t generation_told_ = 0;
};

}  // namespace headroom::coordinator
