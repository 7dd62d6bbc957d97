#include "coordinator/service/service.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "coordinator/log/run_state_snapshot.h"
#include "coordinator/service/status_messages.h"
#include "parallel/base/log.h"
#include "parallel/base/utf8.h"
#include "proto/channel.h"
#include "proto/convert.h"
#include "proto/version.h"

namespace headroom::coordinator {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::Status;
using grpc::StatusCode;

// For workers and agents to find the way back, on top of the usual time
// between heartbeats.
constexpr std::chrono::milliseconds kReadoption = std::chrono::seconds(5);

StatusCode code_of(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::kWrongToken:
      return StatusCode::UNAUTHENTICATED;
    case RefusalKind::kTooManyCalls:
    case RefusalKind::kTooManyJoins:
    case RefusalKind::kMessageTooLong:
    case RefusalKind::kNoRoom:
      return StatusCode::RESOURCE_EXHAUSTED;
    case RefusalKind::kStale:
      return StatusCode::ABORTED;
    case RefusalKind::kNotAsAgreed:
      return StatusCode::FAILED_PRECONDITION;
    case RefusalKind::kEnding:
      return StatusCode::UNAVAILABLE;
    case RefusalKind::kFailed:
      break;
  }
  return StatusCode::INTERNAL;
}

Status status_of(const std::optional<Refusal>& refusal) {
  return refusal ? Status(code_of(refusal->kind), valid_utf8(refusal->reason))
                 : Status::OK;
}

// A refusal of that kind where there is a reason for one.
std::optional<Refusal> refuse_for(RefusalKind kind,
                                  const std::optional<std::string>& reason) {
  if (!reason) return std::nullopt;
  return Refusal{kind, *reason};
}

std::optional<Refusal> check_version(const std::string& who,
                                     const std::string& version) {
  if (version == wire::kVersion) return std::nullopt;
  return Refusal{RefusalKind::kNotAsAgreed,
                 "coordinator is " + std::string(wire::kVersion) + ", this " +
                     who + " is " +
                     (version.empty() ? "of no version" : version) +
                     ": install the same build on every node"};
}

const Refusal kEnding = {RefusalKind::kEnding, "the coordinator is ending"};

std::optional<wire::RunProgress> progress_of(bool present,
                                             const wire::Progress& message) {
  if (!present) return std::nullopt;
  return wire::from_wire(message);
}

}  // namespace

CoordinatorService::CoordinatorService(const RunIdentity& identity,
                                       const RunOptions& options,
                                       const configs::RunConfig& config,
                                       const Clock& clock,
                                       std::unique_ptr<RunLog> log,
                                       const std::string& token)
    : identity_(identity),
      clock_(clock),
      guard_(token),
      state_(options, config, clock.now()),
      journal_(identity_, state_, std::move(log)),
      delivery_(mutex_, identity_, state_, journal_),
      event_file_(identity.run_directory) {
  restore();
}

CoordinatorService::~CoordinatorService() = default;

void CoordinatorService::restore() {
  if (const LoggedRun* run = journal_.found()) {
    RunStateSnapshot::restore(state_, run->snapshot.state(), clock_.now(),
                              kReadoption);
    if (run->progress) {
      const wire::RunProgress progress = wire::from_wire(*run->progress);
      state_.committed(progress.step, progress);
    }
    event_file_.add_unwritten(delivery_.restore(*run));
    wire::EventRecord record;
    record.event = "coordinator_restart";
    record.step = RunStateSnapshot::progress_of(state_).step;
    record.reason =
        "the coordinator was started again and goes on with generation " +
        std::to_string(state_.generation().number) + ", start " +
        std::to_string(journal_.term());
    record.warning = true;
    journal_.save();  // this start counts before anybody hears of it
    delivery_.add_event(record);
  }
  journal_.save();
}

// --- the service's own thread, and the program around it
// ----------------------

void CoordinatorService::tick() {
  std::vector<std::string> lines;
  {
    AfterUnlock after;
    std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    state_.tick(now);
    for (const auto& news : journal_.take_news()) delivery_.add_event(news);
    publish_changes(after);
    lines = delivery_.take_event_lines();
    if (state_.everybody_told(now, !delivery_.has_followers()) &&
        !everybody_told_) {
      everybody_told_ = true;
      over_changed_.notify_all();
    }
  }
  event_file_.add(lines);
  event_file_.write();
  journal_.sync();
  if (!journal_.wants_compaction(clock_.now())) return;
  std::lock_guard lock(mutex_);
  journal_.compact(delivery_.events(), delivery_.keys());
}

RunStatus CoordinatorService::status_locked() const {
  constexpr size_t kNewestEvents = 20;
  RunStatus status = state_.status(clock_.now());
  status.version = wire::kVersion;
  status.run_digest = identity_.run_digest;
  status.events = delivery_.newest_events(kNewestEvents);
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
  publish_changes(after);
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
  delivery_.close(after);
}

void CoordinatorService::publish_changes(AfterUnlock& after) {
  delivery_.deliver(clock_.now(), after);
  journal_.save();
}

// --- who is let in
// ------------------------------------------------------------

ServerUnaryReactor* CoordinatorService::answer(
    CallbackServerContext* context, int64_t request_bytes,
    int64_t max_request_bytes, const std::function<Answer(TimePoint)>& body,
    Call call) {
  Answer refusal;
  if (request_bytes > max_request_bytes) {
    refusal = {RefusalKind::kMessageTooLong,
               "the message has " + std::to_string(request_bytes) +
                   " bytes, more than " + std::to_string(max_request_bytes)};
  } else {
    AfterUnlock after;
    std::lock_guard lock(mutex_);
    try {
      refusal = admit(*context, call == Call::kJoins);
      if (!refusal && closed_) refusal = kEnding;
      if (!refusal) {
        refusal = body(clock_.now());
        delivery_.deliver(clock_.now(), after);
        if (call != Call::kIsHeard) journal_.save();
      }
    } catch (const std::exception& error) {
      // gRPC's threads have nobody above them who could catch it.
      log::error(std::string("a call failed: ") + error.what());
      refusal = {RefusalKind::kFailed, error.what()};
    }
  }
  if (refusal) {
    std::lock_guard lock(mutex_);
    count_refusal(*context, *refusal);
  }
  ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status_of(refusal));
  return reactor;
}

CoordinatorService::Answer CoordinatorService::admit(
    const CallbackServerContext& context, bool joins) {
  const auto& metadata = context.client_metadata();
  const auto token = metadata.find(wire::kTokenMetadata);
  const std::optional<RefusalKind> kind = guard_.admit(
      clock_.now(), context.peer(),
      token == metadata.end()
          ? ""
          : std::string(token->second.data(), token->second.size()),
      joins);
  if (!kind) return std::nullopt;
  return Refusal{*kind, to_string(*kind)};
}

void CoordinatorService::count_refusal(const CallbackServerContext& context,
                                       const Refusal& refusal) {
  if (guard_.refuse(clock_.now(), to_string(refusal.kind)) && !state_.over()) {
    log::warn("refused a call of " + host_of_peer(context.peer()) + ": " +
              valid_utf8(refusal.reason));
  }
}

void CoordinatorService::connection_refused(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (guard_.refuse(clock_.now(), why) && !state_.over() && !closed_) {
    log::warn("refused a connection: " + why);
  }
}

CoordinatorService::Answer CoordinatorService::check_stamp(
    const wire::Stamp& stamp, bool before_first) const {
  return refuse_for(RefusalKind::kStale,
                    stamp_error(stamp.generation(), stamp.run_digest(),
                                state_.generation().number,
                                identity_.run_digest, before_first));
}

// --- the calls
// ----------------------------------------------------------------

ServerUnaryReactor* CoordinatorService::Register(
    CallbackServerContext* context, const wire::RegisterRequest* request,
    wire::RegisterResponse* response) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxMessageBytes,
      [&](TimePoint now) -> Answer {
        Answer refusal = check_version("agent", request->version());
        if (refusal) return refusal;
        Node node;
        node.node_id = request->node_id();
        node.hostname = request->hostname();
        node.launcher_rank = request->launcher_rank();
        node.worker_ids = {request->worker_ids().begin(),
                           request->worker_ids().end()};
        refusal = refuse_for(RefusalKind::kNotAsAgreed,
                             state_.register_node(now, node));
        if (refusal) return refusal;
        response->set_run_digest(identity_.run_digest);
        response->set_run_config_yaml(identity_.run_config_yaml);
        response->set_run_directory(identity_.run_directory);
        return std::nullopt;
      },
      Call::kJoins);
}

// A live coordinator loses a worker with its stream: who has joined and has
// none was left by the coordinator before.
bool CoordinatorService::is_readopted(const std::string& worker_id,
                                      const std::string& node_id) const {
  const Member* member = state_.membership().find(worker_id);
  return member != nullptr && member->state == MemberState::kJoined &&
         member->node_id == node_id;
}

CoordinatorService::Answer CoordinatorService::join(
    TimePoint now, const wire::WatchRequest& request) {
  const std::string& worker_id = request.worker_id();
  if (Answer refusal = check_version("worker", request.version())) {
    return refusal;
  }
  if (closed_) return kEnding;
  // The queue first: the join may complete the quorum and bring an order.
  if (!delivery_.add_worker(worker_id)) {
    return Refusal{RefusalKind::kNotAsAgreed,
                   "worker " + worker_id + " has joined already"};
  }
  if (is_readopted(worker_id, request.node_id())) {
    state_.worker_heartbeat(now, worker_id, std::nullopt);
    delivery_.send_again(worker_id, request.last_order());
    return std::nullopt;
  }
  const auto why = state_.join(now, worker_id, request.node_id());
  if (why) delivery_.remove_worker(worker_id);
  return refuse_for(RefusalKind::kNotAsAgreed, why);
}

grpc::ServerWriteReactor<wire::Assignment>* CoordinatorService::Watch(
    CallbackServerContext* context, const wire::WatchRequest* request) {
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  Answer refusal = admit(*context, true);
  if (refusal) {
    count_refusal(*context, *refusal);
  } else {
    refusal = join(clock_.now(), *request);
  }
  if (refusal) return new RefusedStream<wire::Assignment>(status_of(refusal));
  auto* stream = delivery_.open_stream(
      request->worker_id(),
      [this, worker_id = request->worker_id()](AfterUnlock& after_close) {
        state_.worker_disconnected(clock_.now(), worker_id);
        publish_changes(after_close);
      },
      after);
  publish_changes(after);
  return stream;
}

ServerUnaryReactor* CoordinatorService::Heartbeat(
    CallbackServerContext* context, const wire::HeartbeatRequest* request,
    wire::HeartbeatResponse* response) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxMessageBytes,
      [&](TimePoint now) -> Answer {
        Answer refusal = check_stamp(request->stamp(), true);
        if (refusal) return refusal;
        if (request->worker_id().empty()) {
          const NodeAnswer node =
              state_.node_heartbeat(now, request->node_id());
          if (!node.known) {
            return {{RefusalKind::kStale,
                     "node " + request->node_id() + " is not registered"}};
          }
          for (const std::string& worker_id : node.lost_worker_ids) {
            response->add_lost_worker_ids(worker_id);
          }
        } else if (!state_.worker_heartbeat(now, request->worker_id(),
                                            progress_of(request->has_progress(),
                                                        request->progress()))) {
          return {{RefusalKind::kStale,
                   "worker " + request->worker_id() +
                       " takes no part in this run (any more)"}};
        }
        response->set_stop_requested(state_.stop_requested());
        response->set_leave_requested(state_.leave_requested());
        response->set_peer_lost(state_.peer_lost());
        response->set_run_over(state_.over());
        response->set_exit_code(state_.exit_code());
        if (state_.over()) response->set_reason(state_.reason());
        return std::nullopt;
      },
      Call::kIsHeard);
}

ServerUnaryReactor* CoordinatorService::Publish(
    CallbackServerContext* context, const wire::PublishRequest* request,
    wire::PublishResponse*) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxMessageBytes,
      [&](TimePoint) -> Answer {
        Answer refusal = check_stamp(request->stamp(), false);
        if (refusal) return refusal;
        refusal = refuse_for(
            RefusalKind::kNoRoom,
            delivery_.keys().publish(request->key(), request->value()));
        if (refusal) return refusal;
        wire::LoggedKey key;
        key.set_generation(request->stamp().generation());
        key.set_key(request->key());
        key.set_value(request->value());
        journal_.add(key);
        return std::nullopt;
      },
      Call::kIsHeard);
}

ServerUnaryReactor* CoordinatorService::Lookup(
    CallbackServerContext* context, const wire::LookupRequest* request,
    wire::LookupResponse* response) {
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  Answer refusal = admit(*context, false);
  if (!refusal) refusal = check_stamp(request->stamp(), false);
  if (refusal) count_refusal(*context, *refusal);
  if (!refusal && state_.phase() != RunPhase::kRunning) {
    refusal = {RefusalKind::kStale, "the run is " + to_string(state_.phase()) +
                                        ": " + state_.reason()};
  }
  if (!refusal && closed_) refusal = kEnding;
  constexpr int64_t kMaxWaitMs = 60000;
  const auto wait = std::chrono::milliseconds(
      std::clamp<int64_t>(request->timeout_ms(), 0, kMaxWaitMs));
  const std::string* value =
      refusal ? nullptr : delivery_.keys().find(request->key());
  if (!refusal && value == nullptr && wait.count() > 0) {
    return delivery_.wait_for_key(request->key(), clock_.now() + wait,
                                  response);
  }
  response->set_found(value != nullptr);
  if (value != nullptr) response->set_value(*value);
  ServerUnaryReactor* reactor = context->DefaultReactor();
  after.add(
      [reactor, status = status_of(refusal)] { reactor->Finish(status); });
  return reactor;
}

ServerUnaryReactor* CoordinatorService::ReportFailure(
    CallbackServerContext* context, const wire::ReportFailureRequest* request,
    wire::ReportFailureResponse*) {
  return answer(context, request->ByteSizeLong(), wire::kMaxMessageBytes,
                [&](TimePoint now) -> Answer {
                  Answer refusal = check_stamp(request->stamp(), true);
                  if (refusal) return refusal;
                  state_.worker_failed(
                      now, request->worker_id(), request->exit_code(),
                      request->message(), request->committed_steps(),
                      request->peer_lost(),
                      {request->holds_a_part(), request->checkpoint_steps()});
                  return std::nullopt;
                });
}

ServerUnaryReactor* CoordinatorService::LeaveGeneration(
    CallbackServerContext* context, const wire::LeaveGenerationRequest* request,
    wire::LeaveGenerationResponse*) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxReportBytes,
      [&](TimePoint now) -> Answer {
        Answer refusal = check_stamp(request->stamp(), false);
        if (refusal) return refusal;
        Leaving leaving;
        leaving.from = {request->committed_steps(), request->checkpoint()};
        leaving.shortage = {request->committed_steps(), request->failed_rank(),
                            request->asked_bytes(),     request->free_bytes(),
                            request->limit_bytes(),     request->room_bytes()};
        leaving.result_json = request->result_json();
        leaving.cause =
            request->was_asked() ? LeavingCause::kAsked : LeavingCause::kMemory;
        leaving.state = {request->holds_a_part(), request->checkpoint_steps()};
        return refuse_for(
            RefusalKind::kNotAsAgreed,
            state_.generation_left(now, request->worker_id(), leaving));
      });
}

ServerUnaryReactor* CoordinatorService::ReportExit(
    CallbackServerContext* context, const wire::ReportExitRequest* request,
    wire::ReportExitResponse* response) {
  return answer(context, request->ByteSizeLong(), wire::kMaxMessageBytes,
                [&](TimePoint now) -> Answer {
                  Answer refusal = check_stamp(request->stamp(), true);
                  if (refusal) return refusal;
                  const RestartDecision decision = state_.worker_exited(
                      now, request->worker_id(), request->exit_code(),
                      request->last_words());
                  response->set_restart(decision.restart);
                  response->set_delay_ms(decision.delay.count());
                  response->set_reason(valid_utf8(decision.reason));
                  return std::nullopt;
                });
}

ServerUnaryReactor* CoordinatorService::Commit(
    CallbackServerContext* context, const wire::CommitRequest* request,
    wire::CommitResponse*) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxMessageBytes,
      [&](TimePoint) -> Answer {
        Answer refusal = check_stamp(request->stamp(), false);
        if (refusal) return refusal;
        state_.committed(request->step(), progress_of(request->has_progress(),
                                                      request->progress()));
        wire::Progress progress = request->progress();
        progress.set_step(std::max(progress.step(), request->step()));
        journal_.add(progress);
        log::debug("commit: generation " +
                   std::to_string(request->stamp().generation()) + ", " +
                   std::to_string(request->step()) + " steps, loss " +
                   std::to_string(request->loss()));
        return std::nullopt;
      },
      Call::kIsHeard);
}

ServerUnaryReactor* CoordinatorService::ReportEvent(
    CallbackServerContext* context, const wire::ReportEventRequest* request,
    wire::ReportEventResponse*) {
  return answer(context, request->ByteSizeLong(), wire::kMaxReportBytes,
                [&](TimePoint) -> Answer {
                  Answer refusal = check_stamp(request->stamp(), false);
                  if (refusal) return refusal;
                  delivery_.add_event(wire::from_wire(request->event()));
                  return std::nullopt;
                });
}

ServerUnaryReactor* CoordinatorService::Finish(
    CallbackServerContext* context, const wire::FinishRequest* request,
    wire::FinishResponse*) {
  return answer(context, request->ByteSizeLong(), wire::kMaxReportBytes,
                [&](TimePoint now) -> Answer {
                  Answer refusal = check_stamp(request->stamp(), false);
                  if (refusal) return refusal;
                  return refuse_for(
                      RefusalKind::kNotAsAgreed,
                      state_.finish(now, request->worker_id(),
                                    request->exit_code(), request->reason(),
                                    request->result_json(), request->step()));
                });
}

ServerUnaryReactor* CoordinatorService::GetStatus(
    CallbackServerContext* context, const wire::GetStatusRequest* request,
    wire::GetStatusResponse* response) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxMessageBytes,
      [&](TimePoint) -> Answer {
        *response = to_wire(status_locked());
        return std::nullopt;
      },
      Call::kIsHeard);
}

grpc::ServerWriteReactor<wire::Event>* CoordinatorService::StreamEvents(
    CallbackServerContext* context, const wire::StreamEventsRequest* request) {
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  Answer refusal = admit(*context, false);
  if (refusal) {
    count_refusal(*context, *refusal);
  } else if (closed_) {
    refusal = kEnding;
  }
  if (refusal) return new RefusedStream<wire::Event>(status_of(refusal));
  return delivery_.follow_events(request->after_sequence(), after);
}

ServerUnaryReactor* CoordinatorService::Drain(CallbackServerContext* context,
                                              const wire::DrainRequest* request,
                                              wire::DrainResponse*) {
  return answer(context, request->ByteSizeLong(), wire::kMaxMessageBytes,
                [&](TimePoint now) -> Answer {
                  if (request->node_id().empty()) {
                    state_.drain(now, request->reason());
                  } else {
                    state_.drain_node(now, request->node_id(),
                                      request->reason());
                  }
                  return std::nullopt;
                });
}

ServerUnaryReactor* CoordinatorService::Stop(CallbackServerContext* context,
                                             const wire::StopRequest* request,
                                             wire::StopResponse*) {
  return answer(context, request->ByteSizeLong(), wire::kMaxMessageBytes,
                [&](TimePoint now) -> Answer {
                  state_.stop(now, request->reason());
                  return std::nullopt;
                });
}

}  // namespace headroom::coordinator
