// The calls of coordinator.proto; what is delivered to waiting clients is in
// service_delivery.cpp.
#include "coordinator/service/service.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "coordinator/service/message_stream.h"
#include "coordinator/service/pending_lookup.h"
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

const std::string kTooLong = "the message has ";

Status refused(const std::string& why) {
  return Status(StatusCode::FAILED_PRECONDITION, valid_utf8(why));
}

Status stale(const std::string& why) {
  return Status(StatusCode::ABORTED, valid_utf8(why));
}

Status check_version(const std::string& who, const std::string& version) {
  if (version == wire::kVersion) return Status::OK;
  return refused("coordinator is " + std::string(wire::kVersion) + ", this " +
                 who + " is " + (version.empty() ? "of no version" : version) +
                 ": install the same build on every node");
}

// Few kinds: each is a series of its own in the metrics.
std::string kind_of_refusal(const Status& status) {
  const std::string& words = status.error_message();
  for (const Admission admission :
       {Admission::kWrongToken, Admission::kTooManyCalls,
        Admission::kTooManyJoins}) {
    if (words == to_string(admission)) return words;
  }
  switch (status.error_code()) {
    case StatusCode::ABORTED:
      return "stale";
    case StatusCode::FAILED_PRECONDITION:
      return "not as agreed";
    case StatusCode::RESOURCE_EXHAUSTED:
      return words.starts_with(kTooLong) ? "message too long" : "no room";
    default:
      return "other";
  }
}

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
      log_(std::move(log)),
      event_file_(identity.run_directory) {
  restore();
}

CoordinatorService::~CoordinatorService() = default;

ServerUnaryReactor* CoordinatorService::answer(
    CallbackServerContext* context, int64_t request_bytes,
    int64_t max_request_bytes, const std::function<Status(TimePoint)>& body,
    Call call) {
  Status status;
  if (request_bytes > max_request_bytes) {
    status =
        Status(StatusCode::RESOURCE_EXHAUSTED,
               kTooLong + std::to_string(request_bytes) + " bytes, more than " +
                   std::to_string(max_request_bytes));
  } else {
    AfterUnlock after;
    std::lock_guard lock(mutex_);
    try {
      status = admit(*context, call == Call::kJoins);
      if (status.ok() && closed_) {
        status = Status(StatusCode::UNAVAILABLE, "the coordinator is ending");
      }
      if (status.ok()) {
        status = body(clock_.now());
        deliver(after);
        if (call != Call::kIsHeard) save_snapshot();
      }
    } catch (const std::exception& error) {
      // gRPC's threads have nobody above them who could catch it.
      log::error(std::string("a call failed: ") + error.what());
      status = Status(StatusCode::INTERNAL, valid_utf8(error.what()));
    }
  }
  if (!status.ok()) {
    std::lock_guard lock(mutex_);
    count_refusal(*context, status);
  }
  ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

Status CoordinatorService::admit(const CallbackServerContext& context,
                                 bool joins) {
  const auto& metadata = context.client_metadata();
  const auto token = metadata.find(wire::kTokenMetadata);
  const Admission admission = guard_.admit(
      clock_.now(), context.peer(),
      token == metadata.end()
          ? ""
          : std::string(token->second.data(), token->second.size()),
      joins);
  if (admission == Admission::kAdmitted) return Status::OK;
  return Status(admission == Admission::kWrongToken
                    ? StatusCode::UNAUTHENTICATED
                    : StatusCode::RESOURCE_EXHAUSTED,
                to_string(admission));
}

// The mutex is held.
void CoordinatorService::count_refusal(const CallbackServerContext& context,
                                       const Status& status) {
  if (guard_.refuse(clock_.now(), kind_of_refusal(status)) && !state_.over()) {
    log::warn("refused a call of " + host_of_peer(context.peer()) + ": " +
              status.error_message());
  }
}

void CoordinatorService::connection_refused(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (guard_.refuse(clock_.now(), why) && !state_.over() && !closed_) {
    log::warn("refused a connection: " + why);
  }
}

Status CoordinatorService::check_stamp(const wire::Stamp& stamp,
                                       bool before_first) const {
  const auto why = stamp_error(stamp.generation(), stamp.run_digest(),
                               state_.generation().number, identity_.run_digest,
                               before_first);
  return why ? stale(*why) : Status::OK;
}

ServerUnaryReactor* CoordinatorService::Register(
    CallbackServerContext* context, const wire::RegisterRequest* request,
    wire::RegisterResponse* response) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxMessageBytes,
      [&](TimePoint now) {
        const Status version = check_version("agent", request->version());
        if (!version.ok()) return version;
        Node node;
        node.node_id = request->node_id();
        node.hostname = request->hostname();
        node.launcher_rank = request->launcher_rank();
        node.worker_ids = {request->worker_ids().begin(),
                           request->worker_ids().end()};
        if (const auto why = state_.register_node(now, node)) {
          return refused(*why);
        }
        response->set_run_digest(identity_.run_digest);
        response->set_run_config_yaml(identity_.run_config_yaml);
        response->set_run_directory(identity_.run_directory);
        return Status::OK;
      },
      Call::kJoins);
}

grpc::ServerWriteReactor<wire::Assignment>* CoordinatorService::Watch(
    CallbackServerContext* context, const wire::WatchRequest* request) {
  const std::string worker_id = request->worker_id();
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  Status status = admit(*context, true);
  if (!status.ok()) count_refusal(*context, status);
  if (status.ok()) status = check_version("worker", request->version());
  if (status.ok() && closed_) {
    status = Status(StatusCode::UNAVAILABLE, "the coordinator is ending");
  }
  if (!status.ok()) return new RefusedStream<wire::Assignment>(status);
  // The entry first: the join may complete the quorum and bring an order.
  const auto [entry, added] = watchers_.try_emplace(worker_id);
  if (!added) {
    return new RefusedStream<wire::Assignment>(
        refused("worker " + worker_id + " has joined already"));
  }
  Watcher& watcher = entry->second;
  wire::Assignment welcome;
  welcome.mutable_stamp()->set_run_digest(identity_.run_digest);
  welcome.set_action(wire::ACTION_WAIT);
  watcher.queue.push_back(std::move(welcome));
  if (is_readopted(worker_id, request->node_id())) {
    state_.worker_heartbeat(clock_.now(), worker_id, std::nullopt);
    send_again(worker_id, request->last_order(), watcher);
  } else if (const auto why =
                 state_.join(clock_.now(), worker_id, request->node_id())) {
    watchers_.erase(entry);
    return new RefusedStream<wire::Assignment>(refused(*why));
  }
  auto* stream = new AssignmentStream(
      mutex_,
      [&watcher](wire::Assignment* next) {
        if (watcher.queue.empty()) return false;
        *next = std::move(watcher.queue.front());
        watcher.queue.pop_front();
        return true;
      },
      [this, worker_id](AfterUnlock& after_close) {
        watchers_.erase(worker_id);
        state_.worker_disconnected(clock_.now(), worker_id);
        deliver(after_close);
        save_snapshot();
      });
  watcher.stream = stream;
  stream->pump(after);
  deliver(after);
  save_snapshot();
  return stream;
}

ServerUnaryReactor* CoordinatorService::Heartbeat(
    CallbackServerContext* context, const wire::HeartbeatRequest* request,
    wire::HeartbeatResponse* response) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxMessageBytes,
      [&](TimePoint now) {
        const Status fresh = check_stamp(request->stamp(), true);
        if (!fresh.ok()) return fresh;
        if (request->worker_id().empty()) {
          const NodeAnswer node =
              state_.node_heartbeat(now, request->node_id());
          if (!node.known) {
            return stale("node " + request->node_id() + " is not registered");
          }
          for (const std::string& worker_id : node.lost_worker_ids) {
            response->add_lost_worker_ids(worker_id);
          }
        } else if (!state_.worker_heartbeat(now, request->worker_id(),
                                            progress_of(request->has_progress(),
                                                        request->progress()))) {
          return stale("worker " + request->worker_id() +
                       " takes no part in this run (any more)");
        }
        response->set_stop_requested(state_.stop_requested());
        response->set_leave_requested(state_.leave_requested());
        response->set_peer_lost(state_.peer_lost());
        response->set_run_over(state_.over());
        response->set_exit_code(state_.exit_code());
        if (state_.over()) response->set_reason(state_.reason());
        return Status::OK;
      },
      Call::kIsHeard);
}

ServerUnaryReactor* CoordinatorService::Publish(
    CallbackServerContext* context, const wire::PublishRequest* request,
    wire::PublishResponse*) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxMessageBytes,
      [&](TimePoint) {
        const Status fresh = check_stamp(request->stamp(), false);
        if (!fresh.ok()) return fresh;
        const auto why = keys_.publish(request->key(), request->value());
        if (why) return Status(StatusCode::RESOURCE_EXHAUSTED, *why);
        with_log([&] {
          wire::LoggedKey key;
          key.set_generation(request->stamp().generation());
          key.set_key(request->key());
          key.set_value(request->value());
          log_->add(key);
        });
        return Status::OK;
      },
      Call::kIsHeard);
}

ServerUnaryReactor* CoordinatorService::Lookup(
    CallbackServerContext* context, const wire::LookupRequest* request,
    wire::LookupResponse* response) {
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  Status status = admit(*context, false);
  if (status.ok()) status = check_stamp(request->stamp(), false);
  if (!status.ok()) count_refusal(*context, status);
  if (status.ok() && state_.phase() != RunPhase::kRunning) {
    status = stale("the run is " + to_string(state_.phase()) + ": " +
                   state_.reason());
  }
  if (status.ok() && closed_) {
    status = Status(StatusCode::UNAVAILABLE, "the coordinator is ending");
  }
  constexpr int64_t kMaxWaitMs = 60000;
  const auto wait = std::chrono::milliseconds(
      std::clamp<int64_t>(request->timeout_ms(), 0, kMaxWaitMs));
  const std::string* value = status.ok() ? keys_.find(request->key()) : nullptr;
  if (!status.ok() || value != nullptr || wait.count() == 0) {
    response->set_found(value != nullptr);
    if (value != nullptr) response->set_value(*value);
    ServerUnaryReactor* reactor = context->DefaultReactor();
    after.add([reactor, status] { reactor->Finish(status); });
    return reactor;
  }
  auto* pending = new PendingLookup(mutex_, lookups_, request->key(),
                                    clock_.now() + wait, response);
  lookups_.push_back(pending);
  return pending;
}

ServerUnaryReactor* CoordinatorService::ReportFailure(
    CallbackServerContext* context, const wire::ReportFailureRequest* request,
    wire::ReportFailureResponse*) {
  return answer(context, request->ByteSizeLong(), wire::kMaxMessageBytes,
                [&](TimePoint now) {
                  const Status fresh = check_stamp(request->stamp(), true);
                  if (!fresh.ok()) return fresh;
                  state_.worker_failed(
                      now, request->worker_id(), request->exit_code(),
                      request->message(), request->committed_steps(),
                      request->peer_lost(),
                      {request->holds_a_part(), request->checkpoint_steps()});
                  return Status::OK;
                });
}

ServerUnaryReactor* CoordinatorService::LeaveGeneration(
    CallbackServerContext* context, const wire::LeaveGenerationRequest* request,
    wire::LeaveGenerationResponse*) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxReportBytes,
      [&](TimePoint now) {
        const Status fresh = check_stamp(request->stamp(), false);
        if (!fresh.ok()) return fresh;
        Leaving leaving;
        leaving.from = {request->committed_steps(), request->checkpoint()};
        leaving.shortage = {request->committed_steps(), request->failed_rank(),
                            request->asked_bytes(),     request->free_bytes(),
                            request->limit_bytes(),     request->room_bytes()};
        leaving.result_json = request->result_json();
        leaving.cause =
            request->was_asked() ? LeavingCause::kAsked : LeavingCause::kMemory;
        leaving.state = {request->holds_a_part(), request->checkpoint_steps()};
        const auto why =
            state_.generation_left(now, request->worker_id(), leaving);
        return why ? refused(*why) : Status::OK;
      });
}

ServerUnaryReactor* CoordinatorService::ReportExit(
    CallbackServerContext* context, const wire::ReportExitRequest* request,
    wire::ReportExitResponse* response) {
  return answer(context, request->ByteSizeLong(), wire::kMaxMessageBytes,
                [&](TimePoint now) {
                  const Status fresh = check_stamp(request->stamp(), true);
                  if (!fresh.ok()) return fresh;
                  const RestartDecision decision = state_.worker_exited(
                      now, request->worker_id(), request->exit_code(),
                      request->last_words());
                  response->set_restart(decision.restart);
                  response->set_delay_ms(decision.delay.count());
                  response->set_reason(valid_utf8(decision.reason));
                  return Status::OK;
                });
}

ServerUnaryReactor* CoordinatorService::Commit(
    CallbackServerContext* context, const wire::CommitRequest* request,
    wire::CommitResponse*) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxMessageBytes,
      [&](TimePoint) {
        const Status fresh = check_stamp(request->stamp(), false);
        if (!fresh.ok()) return fresh;
        state_.committed(request->step(), progress_of(request->has_progress(),
                                                      request->progress()));
        with_log([&] {
          wire::Progress progress = request->progress();
          progress.set_step(std::max(progress.step(), request->step()));
          log_->add(progress);
        });
        log::debug("commit: generation " +
                   std::to_string(request->stamp().generation()) + ", " +
                   std::to_string(request->step()) + " steps, loss " +
                   std::to_string(request->loss()));
        return Status::OK;
      },
      Call::kIsHeard);
}

ServerUnaryReactor* CoordinatorService::ReportEvent(
    CallbackServerContext* context, const wire::ReportEventRequest* request,
    wire::ReportEventResponse*) {
  return answer(context, request->ByteSizeLong(), wire::kMaxReportBytes,
                [&](TimePoint) {
                  const Status fresh = check_stamp(request->stamp(), false);
                  if (!fresh.ok()) return fresh;
                  deliver_event(from_wire(request->event()));
                  return Status::OK;
                });
}

ServerUnaryReactor* CoordinatorService::Finish(
    CallbackServerContext* context, const wire::FinishRequest* request,
    wire::FinishResponse*) {
  return answer(context, request->ByteSizeLong(), wire::kMaxReportBytes,
                [&](TimePoint now) {
                  const Status fresh = check_stamp(request->stamp(), false);
                  if (!fresh.ok()) return fresh;
                  const auto why =
                      state_.finish(now, request->worker_id(),
                                    request->exit_code(), request->reason(),
                                    request->result_json(), request->step());
                  return why ? refused(*why) : Status::OK;
                });
}

ServerUnaryReactor* CoordinatorService::GetStatus(
    CallbackServerContext* context, const wire::GetStatusRequest* request,
    wire::GetStatusResponse* response) {
  return answer(
      context, request->ByteSizeLong(), wire::kMaxMessageBytes,
      [&](TimePoint) {
        *response = to_wire(status_locked());
        return Status::OK;
      },
      Call::kIsHeard);
}

grpc::ServerWriteReactor<wire::Event>* CoordinatorService::StreamEvents(
    CallbackServerContext* context, const wire::StreamEventsRequest* request) {
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  if (const Status status = admit(*context, false); !status.ok()) {
    count_refusal(*context, status);
    return new RefusedStream<wire::Event>(status);
  }
  if (closed_) {
    return new RefusedStream<wire::Event>(
        Status(StatusCode::UNAVAILABLE, "the coordinator is ending"));
  }
  const auto follower = followers_.emplace(followers_.end());
  follower->last_sequence = request->after_sequence();
  auto* stream = new EventStream(
      mutex_,
      [this, follower](wire::Event* next) {
        const wire::EventRecord* record =
            events_.next_after(follower->last_sequence);
        if (record == nullptr) return false;
        follower->last_sequence = record->sequence;
        *next = to_wire(*record);
        return true;
      },
      [this, follower](AfterUnlock&) { followers_.erase(follower); });
  follower->stream = stream;
  stream->pump(after);
  return stream;
}

ServerUnaryReactor* CoordinatorService::Drain(CallbackServerContext* context,
                                              const wire::DrainRequest* request,
                                              wire::DrainResponse*) {
  return answer(context, request->ByteSizeLong(), wire::kMaxMessageBytes,
                [&](TimePoint now) {
                  if (request->node_id().empty()) {
                    state_.drain(now, request->reason());
                  } else {
                    state_.drain_node(now, request->node_id(),
                                      request->reason());
                  }
                  return Status::OK;
                });
}

ServerUnaryReactor* CoordinatorService::Stop(CallbackServerContext* context,
                                             const wire::StopRequest* request,
                                             wire::StopResponse*) {
  return answer(context, request->ByteSizeLong(), wire::kMaxMessageBytes,
                [&](TimePoint now) {
                  state_.stop(now, request->reason());
                  return Status::OK;
                });
}

}  // namespace headroom::coordinator
