#include "worker/control/coordinator_client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/key_value_store.h"
#include "parallel/base/log.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "parallel/machine/core_wait.h"
#include "proto/beat_answer.h"
#include "proto/channel.h"
#include "proto/connection_fault.h"
#include "proto/convert.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/version.h"
#include "worker/control/agent_loss.h"
#include "worker/control/coordinator_call.h"
#include "worker/control/report_queue.h"

namespace headroom::control {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr milliseconds kHeartbeatTimeout{1000};
constexpr milliseconds kAgentLook{100};
// After this time without an agent, waits for peers are aborted, because a peer
// may hang. In the remaining time the workers save their states (agent_loss.h).
constexpr milliseconds kWaitWithoutAgent{10000};
constexpr milliseconds kNewsOnTheWay{1000};
// A worker is lost after 2 s without a message. Before that, if no answer
// arrives through the agent, it contacts the coordinator directly.
constexpr milliseconds kPatienceWithAgent{1400};
// The time limit of the first contact, when the coordinator may not have
// started yet.
constexpr milliseconds kFirstContact{30000};
// From this time without progress on, the waits for a core are measured. It is
// a small part of the limit after which a worker counts as stuck.
constexpr milliseconds kLongQuiet{1000};
constexpr milliseconds kMinBackoff{100};
constexpr milliseconds kMaxBackoff{1000};
// Bytes of a failure's message, which is sent in gRPC headers of limited size.
constexpr size_t kMaxFailure = 2000;

Assignment to_assignment(const wire::Assignment& message) {
  Assignment assignment;
  assignment.generation = message.stamp().generation();
  assignment.reason = message.reason();
  const auto rank = wire::assignment_of(message);
  if (!rank) return assignment;
  assignment.action = message.action() == wire::ACTION_RUN
                          ? Action::kRun
                          : Action::kSaveAndExit;
  static_cast<wire::RankAssignment&>(assignment) = *rank;
  return assignment;
}

// The coordinator's rendezvous map of one generation. The stub must outlive it.
// Errors: CommunicationError, also if the coordinator refuses a request: a
// refusal means that the generation that is being formed is lost.
class RendezvousClient final : public KeyValueStore {
 public:
  // `address`: the coordinator's address, used in messages only.
  RendezvousClient(wire::Coordinator::Stub& stub, wire::Stamp stamp,
                   std::string address, Patience patience);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key,
                  std::chrono::milliseconds timeout) override;
  std::vector<std::string> get_all(const std::string& prefix, int count,
                                   std::chrono::milliseconds timeout) override;

 private:
  // `count`: as in LookupRequest.
  wire::LookupResponse look_up(const std::string& key, int count,
                               std::chrono::milliseconds timeout);
  [[noreturn]] void fail(const std::string& doing, const std::string& key,
                         const grpc::Status& status) const;

  wire::Coordinator::Stub& stub_;
  const wire::Stamp stamp_;
  const std::string address_;
  const Patience patience_;
};

RendezvousClient::RendezvousClient(wire::Coordinator::Stub& stub,
                                   wire::Stamp stamp, std::string address,
                                   Patience patience)
    : stub_(stub),
      stamp_(std::move(stamp)),
      address_(std::move(address)),
      patience_(std::move(patience)) {}

void RendezvousClient::set(const std::string& key, const std::string& value) {
  wire::PublishRequest request;
  *request.mutable_stamp() = stamp_;
  request.set_key(valid_utf8(key));
  request.set_value(value);
  wire::PublishResponse response;
  const grpc::Status status =
      patience_.call(kCallTimeout, [&](grpc::ClientContext& context) {
        return stub_.Publish(&context, request, &response);
      });
  if (!status.ok()) fail("publishing", key, status);
}

std::string RendezvousClient::get(const std::string& key,
                                  milliseconds timeout) {
  return std::move(*look_up(key, 0, timeout).mutable_value());
}

std::vector<std::string> RendezvousClient::get_all(const std::string& prefix,
                                                   int count,
                                                   milliseconds timeout) {
  const wire::LookupResponse found = look_up(prefix, count, timeout);
  return {found.values().begin(), found.values().end()};
}

wire::LookupResponse RendezvousClient::look_up(const std::string& key,
                                               int count,
                                               milliseconds timeout) {
  constexpr milliseconds kSlice{10000};
  PeerPatience patience(timeout, SteadyClock::now());
  auto deadline = SteadyClock::now() + timeout;
  wire::LookupRequest request;
  *request.mutable_stamp() = stamp_;
  request.set_key(valid_utf8(key));
  request.set_count(count);
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(
        std::max(deadline - SteadyClock::now(), SteadyClock::duration(0)));
    const milliseconds slice = std::min(left, kSlice);
    request.set_timeout_ms(slice.count());
    wire::LookupResponse response;
    const grpc::Status status =
        patience_.call(slice + kCallTimeout, [&](grpc::ClientContext& context) {
          return stub_.Lookup(&context, request, &response);
        });
    if (!status.ok()) fail("looking up", key, status);
    if (response.found()) return response;
    const auto now = SteadyClock::now();
    const bool is_over = patience.is_over(now, PeerNews::a_peer_works());
    if (left <= slice && !is_over) deadline = now + std::min(timeout, kSlice);
    if (left <= slice && is_over) {
      throw CommunicationError(
          cat("nobody published rendezvous key '", key,
              count == 0 ? "'" : cat("0' to '", key, count - 1, "'"),
              " within ", patience.waited().count(), " ms"));
    }
  }
}

void RendezvousClient::fail(const std::string& doing, const std::string& key,
                            const grpc::Status& status) const {
  throw CommunicationError(doing + " rendezvous key '" + key +
                           "' at the coordinator at " + address_ + ": " +
                           status.error_message());
}

class GrpcCoordinatorClient final : public CoordinatorClient {
 public:
  GrpcCoordinatorClient(const std::string& address,
                        const wire::MemberIdentity& identity,
                        const std::string& advertise_host,
                        milliseconds patience, wire::BeatChannel agent)
      : patience_(patience),
        address_(address),
        node_id_(valid_utf8(identity.node_id)),
        worker_id_(valid_utf8(identity.worker_id)),
        advertise_host_(valid_utf8(advertise_host)),
        stub_(wire::Coordinator::NewStub(
                  wire::make_channel(address, wire::channel_security(),
                                     {.node_id = node_id_,
                                      .worker_id = worker_id_,
                                      .secret = identity.secret}))
                  .release()),
        agent_(std::move(agent)) {
    watcher_ = std::thread([this] { follow_assignments(); });
    try {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return joined_ || failure_; });
      if (!joined_) std::rethrow_exception(failure_);
    } catch (...) {
      watcher_.join();  // the thread has already ended because of the failure
      throw;
    }
    heartbeats_ = std::thread([this] { send_heartbeats(); });
  }

  ~GrpcCoordinatorClient() override {
    reports_.flush(milliseconds(1000));
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
      if (watch_context_) watch_context_->TryCancel();
    }
    changed_.notify_all();
    agent_.hang_up();
    watcher_.join();
    heartbeats_.join();
  }

  Assignment next_assignment() override {
    const PeerWait waiting;  // other workers may have to join first
    std::unique_lock lock(mutex_);
    // Poll: the signal handler that notes the agent's loss can wake no thread.
    while (assignments_.empty() && !failure_ && !agent_loss::has_happened()) {
      changed_.wait_for(lock, kAgentLook);
    }
    if (assignments_.empty() && failure_) std::rethrow_exception(failure_);
    if (assignments_.empty()) throw CommunicationError("the agent is lost");
    Assignment next = std::move(assignments_.front());
    assignments_.pop_front();
    return next;
  }

  std::unique_ptr<KeyValueStore> rendezvous(uint64_t generation) override {
    wire::Stamp stamp = current_stamp();
    stamp.set_generation(generation);
    return std::make_unique<RendezvousClient>(*stub_, stamp, address_,
                                              patience());
  }

  void set_progress(const wire::RunProgress& progress) override {
    PeerWait::sign_of_life();
    std::lock_guard lock(mutex_);
    progress_ = progress;
  }

  bool stop_requested() const override { return stop_requested_; }
  bool leave_requested(uint64_t generation) const override {
    return leave_requested_ == generation;
  }

  void commit(int64_t step, double loss,
              const wire::RunProgress& progress) override {
    set_progress(progress);
    wire::CommitRequest request;
    *request.mutable_stamp() = current_stamp();
    request.set_step(step);
    request.set_loss(loss);
    *request.mutable_progress() = wire::to_message<wire::Progress>(progress);
    reports_.add([this, request](grpc::ClientContext& context) {
      wire::CommitResponse response;
      return stub_->Commit(&context, request, &response);
    });
  }

  void report_event(const RunEvent& event) override {
    wire::ReportEventRequest request;
    *request.mutable_stamp() = current_stamp();
    *request.mutable_event() = wire::to_wire(event);
    // The lock makes reports be sent in the order of their numbers.
    std::lock_guard lock(report_mutex_);
    request.mutable_event()->set_report(++num_reports_);
    reports_.add([this, request](grpc::ClientContext& context) {
      wire::ReportEventResponse response;
      return stub_->ReportEvent(&context, request, &response);
    });
  }

  void report_failure(const WorkerFailure& failure) override {
    reports_.flush(milliseconds(1000));
    WorkerFailure sent = failure;
    sent.message = shortened(failure.message, kMaxFailure);
    auto request = wire::to_message<wire::ReportFailureRequest>(sent);
    *request.mutable_stamp() = current_stamp();
    request.set_worker_id(worker_id_);
    wire::ReportFailureResponse response;
    call("reporting a failure to ", [&](grpc::ClientContext& context) {
      return stub_->ReportFailure(&context, request, &response);
    });
  }

  void leave_generation(const LeftGeneration& left) override {
    // Afterwards the coordinator accepts no more reports of this generation.
    reports_.flush(kCallTimeout);
    auto request = wire::to_message<wire::LeaveGenerationRequest>(left);
    *request.mutable_stamp() = current_stamp();
    request.set_worker_id(worker_id_);
    wire::LeaveGenerationResponse response;
    call("leaving the generation at ", [&](grpc::ClientContext& context) {
      return stub_->LeaveGeneration(&context, request, &response);
    });
  }

  void finish(const FinishedRun& finished) override {
    reports_.flush(kCallTimeout);
    auto request = wire::to_message<wire::FinishRequest>(finished);
    *request.mutable_stamp() = current_stamp();
    request.set_worker_id(worker_id_);
    wire::FinishResponse response;
    call("finishing the run at ", [&](grpc::ClientContext& context) {
      return stub_->Finish(&context, request, &response);
    });
  }

 private:
  Patience patience() const {
    return {patience_, [this] {
              std::lock_guard lock(mutex_);
              return ending_ || failure_ != nullptr ||
                     agent_loss::has_happened();
            }};
  }

  wire::Stamp current_stamp() const {
    std::lock_guard lock(mutex_);
    return stamp_;
  }

  void call(const std::string& doing, const ReportQueue::Call& send) {
    const grpc::Status status = patience().call(kCallTimeout, send);
    if (!status.ok()) {
      wire::throw_failure(status, doing + "the coordinator at " + address_);
    }
  }

  // --- the stream of assignments: a thread of its own -----------------------
  void follow_assignments() {
    wire::WatchRequest request;
    request.set_version(wire::kVersion);
    request.set_node_id(node_id_);
    request.set_worker_id(worker_id_);
    request.set_advertise_host(advertise_host_);
    milliseconds limit = kFirstContact;
    milliseconds backoff = kMinBackoff;
    auto silent_since = SteadyClock::now();
    for (;;) {
      grpc::ClientContext context;
      {
        std::lock_guard lock(mutex_);
        if (ending_) return;
        watch_context_ = &context;
        request.set_last_order(last_order_);
      }
      const auto reader = stub_->Watch(&context, request);
      wire::Assignment message;
      bool connected = false;
      while (reader->Read(&message)) {
        connected = true;
        is_watching_ = true;
        if (!take(message)) context.TryCancel();
      }
      if (connected) {
        // The time without a connection counts from now, because the last
        // message may be old.
        silent_since = SteadyClock::now();
        limit = patience_;
        backoff = kMinBackoff;
      }
      is_watching_ = false;
      const grpc::Status status = reader->Finish();
      std::unique_lock lock(mutex_);
      watch_context_ = nullptr;
      if (ending_ || failure_) return;
      if (end_of_stream(status, SteadyClock::now() - silent_since, limit)) {
        changed_.notify_all();
        return;
      }
      changed_.wait_for(lock, backoff, [&] { return ending_; });
      backoff = std::min(2 * backoff, kMaxBackoff);
    }
  }

  // Returns false if the message is not a valid assignment.
  bool take(const wire::Assignment& message) {
    std::lock_guard lock(mutex_);
    try {
      const Assignment assignment = to_assignment(message);
      stamp_.set_run_digest(message.stamp().run_digest());
      joined_ = true;
      if (message.action() != wire::ACTION_WAIT) {
        assignments_.push_back(assignment);
        last_order_ = message.order();
        stamp_.set_generation(message.stamp().generation());
      }
    } catch (const Error&) {
      failure_ = std::current_exception();
    }
    changed_.notify_all();
    return !failure_;
  }

  // Call with the mutex held. Returns true if no further assignment will
  // arrive.
  bool end_of_stream(const grpc::Status& status, SteadyClock::duration silence,
                     milliseconds limit) {
    const std::string whom = "the coordinator at " + address_;
    try {
      if (status.ok()) throw CommunicationError(whom + " has ended");
      if (!wire::is_unreachable(status))
        wire::throw_failure(status, "joining " + whom);
      if (silence < limit) return false;
      const auto fault =
          wire::connection_fault(address_, wire::channel_security());
      throw CommunicationError(
          cat("no answer from ", whom, " for ",
              std::chrono::duration_cast<std::chrono::seconds>(limit).count(),
              " s (", fault ? fault->what : status.error_message(), ")"));
    } catch (const Error&) {
      failure_ = std::current_exception();
    }
    return true;
  }

  // --- heartbeats: a thread of its own ---------------------------------------
  void send_heartbeats() {
    heard_agent_ = refused_since_ = with_agent_ = SteadyClock::now();
    std::unique_lock lock(mutex_);
    while (!ending_) {
      wire::Beat beat = next_beat();
      lock.unlock();
      add_core_wait(beat);
      // If the agent hangs or has ended, send the beat to the coordinator.
      const bool is_carried =
          agent_.send(beat) && beat.sent - heard_agent_ < kPatienceWithAgent;
      if (!is_carried) hear(ask_coordinator(beat));
      if (!agent_loss::has_happened()) with_agent_ = SteadyClock::now();
      if (SteadyClock::now() - with_agent_ > kWaitWithoutAgent) {
        AbortableWait::abort_all();
      }
      hear_agent_until(SteadyClock::now() + wire::kHeartbeatInterval);
      lock.lock();
    }
  }

  // Call with the mutex held.
  wire::Beat next_beat() const {
    wire::Beat beat{.sent = SteadyClock::now(),
                    .generation = stamp_.generation(),
                    .waits_for_peers = PeerWait::is_waiting(),
                    .has_progress = progress_.has_value(),
                    .progress = progress_.value_or(wire::RunProgress())};
    // Only while training is there a limit for the time without progress.
    if (beat.progress.phase == wire::WorkerPhase::kTrain) {
      beat.progress.quiet_ms = PeerWait::quiet().count();
    }
    return beat;
  }

  // Call without the mutex, because this reads a file for each thread.
  void add_core_wait(wire::Beat& beat) {
    const milliseconds quiet(beat.progress.quiet_ms);
    if (quiet < kLongQuiet) {
      core_wait_ = {};
      return;
    }
    beat.progress.core_wait_ms =
        core_wait_.look(coreless_time(), quiet).count();
  }

  wire::BeatAnswer ask_coordinator(const wire::Beat& beat) {
    wire::HeartbeatRequest request;
    *request.mutable_stamp() = current_stamp();
    request.mutable_stamp()->set_generation(beat.generation);
    request.set_node_id(node_id_);
    request.set_worker_id(worker_id_);
    request.set_waits_for_peers(beat.waits_for_peers);
    if (beat.has_progress) {
      *request.mutable_progress() =
          wire::to_message<wire::Progress>(beat.progress);
    }
    wire::HeartbeatResponse response;
    grpc::ClientContext context;
    set_deadline(context, kHeartbeatTimeout);
    // Wait even if the coordinator is unreachable: gRPC only opens connections
    // while a call waits for one.
    context.set_wait_for_ready(true);
    const grpc::Status status = stub_->Heartbeat(&context, request, &response);
    if (!status.ok()) log::debug("heartbeat: " + status.error_message());
    return wire::answer_to(beat, status, response);
  }

  void hear_agent_until(SteadyClock::time_point end) {
    for (;;) {
      const auto now = SteadyClock::now();
      if (now >= end) return;
      if (!agent_.is_open()) break;
      if (const auto answer = agent_.receive<wire::BeatAnswer>(
              std::chrono::ceil<milliseconds>(end - now))) {
        if (answer->is_there) heard_agent_ = SteadyClock::now();
        hear(*answer);
      }
    }
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, end, [&] { return ending_; });
  }

  void hear(const wire::BeatAnswer& answer) {
    if (answer.stop_requested) stop_requested_ = true;
    if (answer.leave_requested) leave_requested_ = answer.generation;
    const std::lock_guard lock(mutex_);
    const bool is_of_now = answer.generation == stamp_.generation();
    if (answer.peer_lost && is_of_now) AbortableWait::abort_all();
    if (is_of_now) PeerNews::note(answer.a_peer_works && !answer.peer_lost);
    // Heartbeats of the current generation are refused: the coordinator has
    // given up this worker. Wait a short time before failing, because the
    // assignment of the next generation may be on its way. While the stream of
    // assignments is not connected, refusals do not count.
    const std::string refusal = answer.refusal;
    if (refusal.empty() || !is_watching_ || !is_of_now) {
      refused_since_ = SteadyClock::now();
    } else if (!failure_ &&
               SteadyClock::now() - refused_since_ >= kNewsOnTheWay) {
      failure_ = std::make_exception_ptr(Error(
          "coordinator", refusal, "resume the run with headroom train --resume",
          ExitCode::kResource));
      changed_.notify_all();
    }
  }

  const milliseconds patience_;
  const std::string address_;
  const std::string node_id_;
  const std::string worker_id_;
  const std::string advertise_host_;
  const wire::GrpcOwner<wire::Coordinator::Stub> stub_;
  std::atomic<bool> is_watching_{false};  // whether the stream is open
  std::atomic<bool> stop_requested_ = false;
  std::atomic<uint64_t> leave_requested_ = 0;  // generation to leave; 0 if none

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  wire::Stamp stamp_;
  std::deque<Assignment> assignments_;
  int64_t last_order_ = 0;      // order number of the newest assignment
  std::exception_ptr failure_;  // set if no further assignment will arrive
  grpc::ClientContext* watch_context_ = nullptr;
  std::optional<wire::RunProgress> progress_;
  bool joined_ = false;
  bool ending_ = false;

  // Used only by the heartbeat thread.
  wire::BeatChannel agent_;
  SteadyClock::time_point heard_agent_;
  SteadyClock::time_point with_agent_;  // the last time when there was an agent
  SteadyClock::time_point refused_since_;
  CoreWait core_wait_;

  std::thread watcher_;
  std::thread heartbeats_;
  std::mutex report_mutex_;
  int64_t num_reports_ = 0;
  ReportQueue reports_;  // destroyed first: its calls use other members
};

}  // namespace

std::unique_ptr<CoordinatorClient> CoordinatorClient::connect(
    const std::string& address, const wire::MemberIdentity& identity,
    const std::string& advertise_host, std::chrono::milliseconds patience,
    wire::BeatChannel agent) {
  return std::make_unique<GrpcCoordinatorClient>(
      address, identity, advertise_host, patience, std::move(agent));
}

}  // namespace headroom::control
