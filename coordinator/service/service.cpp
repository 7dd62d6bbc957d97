#include "coordinator/service/service.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "coordinator/log/run_state_snapshot.h"
#include "coordinator/service/heartbeats.h"
#include "coordinator/service/status_messages.h"
#include "parallel/base/log.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "parallel/plan/plan_json.h"
#include "proto/convert.h"
#include "proto/version.h"

namespace headroom::coordinator {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

// Makes the texts of the cards safe for a terminal: log lines contain them.
std::vector<wire::NodeCard> printable_cards(std::vector<wire::NodeCard> cards) {
  for (wire::NodeCard& card : cards) {
    for (std::string* text :
         {&card.uuid, &card.bus_address, &card.name, &card.trouble}) {
      *text = printable(*text);
    }
  }
  return cards;
}

const Refusal kEnding = {RefusalKind::kEnding, "the coordinator is ending"};

}  // namespace

CoordinatorService::CoordinatorService(const RunIdentity& identity,
                                       const RunOptions& options,
                                       const configs::RunConfig& config,
                                       const Clock& clock,
                                       Connections* connections,
                                       std::unique_ptr<RunLog> log,
                                       const std::string& token)
    : identity_(identity),
      clock_(clock),
      connections_(connections),
      admission_(token),
      state_(options, config, clock.now()),
      rules_(state_, identity_.run_digest),
      journal_(identity_, state_, admission_.secrets(), std::move(log)),
      delivery_(mutex_, identity_, state_, journal_),
      commit_(mutex_, journal_),
      event_file_(identity.run_directory) {
  restore();
}

CoordinatorService::~CoordinatorService() = default;

void CoordinatorService::restore() {
  if (const LoggedRun* run = journal_.found()) {
    for (const wire::LoggedSecret& entry : run->snapshot.secrets()) {
      admission_.secrets().remember(entry.node_id(), entry.secret());
    }
    RunStateSnapshot::restore(state_, run->snapshot.state(), clock_.now(),
                              kReadoption);
    if (run->progress) {
      const auto progress =
          wire::from_message<wire::RunProgress>(*run->progress);
      state_.committed(progress.step, progress);
    }
    event_file_.add_unwritten(delivery_.restore(*run));
    journal_.save();  // logged before any member gets an answer
    journal_.sync();
    delivery_.add_event(journal_.restart_event());
  }
  journal_.save();
  journal_.sync();
}

// --- the service's own thread, and the program around it -------------------

void CoordinatorService::tick() {
  std::vector<std::string> lines;
  {
    AfterUnlock after;
    std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    if (connections_ != nullptr) {
      note_unread_heartbeats(now, *connections_, state_);
    }
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
  return admission_.refusals().counts();
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

void CoordinatorService::leave_events() {
  tick();
  FolderPlace place;
  {
    std::lock_guard lock(mutex_);
    place = state_.folder();
  }
  if (is_elsewhere(identity_.run_directory, place)) event_file_.write_alone();
}

void CoordinatorService::close() {
  commit_.stop();
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  closed_ = true;
  over_changed_.notify_all();
  delivery_.close(after);
}

void CoordinatorService::publish_changes(AfterUnlock& after) {
  delivery_.deliver(clock_.now(), after);
  commit_.add(after, !after.is_empty() || delivery_.has_event_lines());
}

// --- the envelope of a call -------------------------------------------------

ServerUnaryReactor* CoordinatorService::answer(CallbackServerContext& context,
                                               bool changes_run,
                                               const Body& body) {
  ServerUnaryReactor* const reactor = context.DefaultReactor();
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  Answer refusal;
  bool is_admitted = false;
  try {
    const Caller caller = admission_.caller_of(context);
    refusal = admit(context, caller);
    is_admitted = !refusal;
    if (is_admitted) {
      refusal = body(clock_.now(), caller);
      delivery_.deliver(clock_.now(), after);
    }
  } catch (const std::exception& error) {
    // Caught here because gRPC's threads do not catch exceptions.
    log::error(std::string("a call failed: ") + error.what());
    refusal = {RefusalKind::kFailed, error.what()};
  }
  if (refusal) count_refusal(context.peer(), *refusal);
  after.add(
      [reactor, status = status_of(refusal)] { reactor->Finish(status); });
  if (is_admitted && changes_run) commit_.add(after);
  return reactor;
}

Answer CoordinatorService::admit(const CallbackServerContext& context,
                                 const Caller& caller) {
  const TimePoint now = clock_.now();
  state_.note_pause(now);
  if (Answer refusal = admission_.admit(context)) return refusal;
  if (connections_ != nullptr) {
    connections_->note_call(now, caller.peer, has_part(caller));
  }
  if (closed_) return kEnding;
  return std::nullopt;
}

// Without a token anybody may register a node that has no workers.
bool CoordinatorService::has_part(const Caller& caller) const {
  if (admission_.has_token()) return true;
  const Node* const node =
      caller.is_proved ? state_.membership().find_node(caller.identity.node_id)
                       : nullptr;
  return node != nullptr && !node->worker_ids.empty();
}

void CoordinatorService::count_refusal(const std::string& peer,
                                       const Refusal& refusal) {
  if (admission_.refusals().add(clock_.now(), to_string(refusal.kind)) &&
      !state_.over()) {
    log::warn("refused a call of " + host_of_peer(peer) + ": " +
              valid_utf8(refusal.reason));
  }
}

void CoordinatorService::connection_refused(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (admission_.refusals().add(clock_.now(), why) && !state_.over() &&
      !closed_) {
    log::warn("refused a connection: " + why);
  }
}

void CoordinatorService::note_heartbeat(const Caller& caller,
                                        const std::string& member) {
  if (connections_ != nullptr)
    connections_->note_heartbeat(caller.peer, member);
}

// gRPC does not report which connection to a Unix socket has ended. A new agent
// mostly replaces a killed one, so agents on the same machine that are silent
// when it registers count as gone until they send another heartbeat.
void CoordinatorService::note_successor_of(TimePoint now,
                                           const Node& successor) {
  constexpr std::chrono::seconds kSilent{1};
  if (connections_ != nullptr) return;
  for (const Node& node : state_.membership().nodes()) {
    if (node.hostname == successor.hostname &&
        node.node_id != successor.node_id && now - node.last_seen > kSilent) {
      state_.note_hangup(node.node_id);
    }
  }
}

// --- the calls --------------------------------------------------------------

Answer CoordinatorService::handle(TimePoint now, const Caller& caller,
                                  const wire::RegisterRequest& request,
                                  wire::RegisterResponse& response) {
  Answer refusal = check_version("agent", request.version());
  if (refusal) return refusal;
  refusal = admission_.check_registration(caller, request.node_id());
  if (refusal) return refusal;
  const auto asked = wire::from_message<wire::NodeRegistration>(request);
  Node node;
  node.node_id = asked.node_id;
  node.hostname = printable(asked.hostname);
  node.launcher_rank = asked.launcher_rank;
  node.worker_ids = asked.worker_ids;
  node.cards = printable_cards(asked.cards);
  node.no_card_reason = printable(asked.no_card_reason);
  node.unusable_cards = printable(asked.unusable_cards);
  node.launcher_size = asked.launcher_size;
  node.first_local_slot = asked.first_local_slot;
  note_successor_of(now, node);
  const auto why = state_.register_node(now, node);
  // After the run has begun the refusal is final: the program that started the
  // agent may replace the node.
  const bool goes_on = state_.phase() != RunPhase::kWaiting && !state_.over();
  refusal = refuse_for(state_.membership().may_have_room_later(node)
                           ? RefusalKind::kNotYet
                       : goes_on ? RefusalKind::kNoRoom
                                 : RefusalKind::kNotAsAgreed,
                       why);
  if (refusal) return refusal;
  admission_.secrets().remember(node.node_id, caller.identity.secret);
  note_heartbeat(caller, node.node_id);
  if (connections_ != nullptr && !node.worker_ids.empty()) {
    connections_->note_call(now, caller.peer);
  }
  response.set_run_digest(identity_.run_digest);
  response.set_run_config_yaml(identity_.run_config_yaml);
  response.set_run_directory(identity_.run_directory);
  const auto& slot_cards =
      state_.membership().find_node(node.node_id)->slot_cards;
  response.mutable_slot_cards()->Add(slot_cards.begin(), slot_cards.end());
  return std::nullopt;
}

// A worker is removed when its stream ends. So a worker that has joined but has
// no stream was a member of the previous coordinator, or lost its stream while
// this process was paused.
bool CoordinatorService::is_readopted(const std::string& worker_id,
                                      const std::string& node_id) const {
  const Member* member = state_.membership().find(worker_id);
  return member != nullptr && member->state == MemberState::kJoined &&
         member->node_id == node_id;
}

Answer CoordinatorService::join(TimePoint now, const Caller& caller,
                                const wire::WatchRequest& request) {
  const std::string& worker_id = request.worker_id();
  if (Answer refusal = check_version("worker", request.version())) {
    return refusal;
  }
  if (!caller.is_worker(worker_id)) {
    return Refusal{RefusalKind::kForeignName,
                   "worker " + worker_id +
                       " has not proved who it is: it belongs to no registered "
                       "node, or its agent did not start it"};
  }
  // Add the queue before the join, which may cause an order for the worker.
  if (!delivery_.add_worker(worker_id)) {
    // The end of the worker's earlier stream may not have been read yet.
    return Refusal{state_.is_readopting(now) ? RefusalKind::kNotYet
                                             : RefusalKind::kNotAsAgreed,
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
  const Caller caller = admission_.caller_of(*context);
  Answer refusal = admit(*context, caller);
  if (!refusal) refusal = join(clock_.now(), caller, *request);
  if (refusal) {
    count_refusal(context->peer(), *refusal);
    return new RefusedStream<wire::Assignment>(status_of(refusal));
  }
  auto* stream = delivery_.open_stream(
      request->worker_id(),
      [this, worker_id = request->worker_id()](AfterUnlock& after_close) {
        const TimePoint now = clock_.now();
        state_.note_pause(now);
        state_.worker_disconnected(now, worker_id);
        publish_changes(after_close);
      },
      after);
  publish_changes(after);
  return stream;
}

Answer CoordinatorService::handle(TimePoint now, const Caller& caller,
                                  const wire::HeartbeatRequest& request,
                                  wire::HeartbeatResponse& response) {
  std::vector<Refusal> stale;
  Answer refusal = hear_heartbeat(now, request, state_, response, stale);
  if (refusal) return refusal;
  for (const Refusal& beat : stale) count_refusal(caller.peer, beat);
  note_heartbeat(caller, request.worker_id().empty() ? request.node_id()
                                                     : request.worker_id());
  return std::nullopt;
}

Answer CoordinatorService::handle(TimePoint, const Caller& caller,
                                  const wire::PublishRequest& request,
                                  wire::PublishResponse&) {
  const std::string& worker_id = caller.identity.worker_id;
  Answer refusal =
      refuse_for(RefusalKind::kNoRoom,
                 delivery_.publish(worker_id, request.key(), request.value()));
  if (refusal) return refusal;
  state_.note_arrival(worker_id);
  wire::LogRecord record;
  wire::LoggedKey& key = *record.mutable_key();
  key.set_generation(request.stamp().generation());
  key.set_key(request.key());
  key.set_value(request.value());
  journal_.add(record);
  return std::nullopt;
}

ServerUnaryReactor* CoordinatorService::Lookup(CallbackServerContext* context,
                                               const grpc::ByteBuffer* bytes,
                                               grpc::ByteBuffer* response) {
  grpc::ByteBuffer unread = *bytes;
  wire::LookupRequest request;
  const bool is_read =
      grpc::SerializationTraits<wire::LookupRequest>::Deserialize(&unread,
                                                                  &request)
          .ok();
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  const Caller caller = admission_.caller_of(*context);
  Answer refusal = admit(*context, caller);
  if (!refusal && !is_read) {
    refusal = {RefusalKind::kNotAsAgreed, "this is no LookupRequest"};
  }
  if (!refusal) refusal = rules_.check(caller, request);
  if (refusal) count_refusal(caller.peer, *refusal);
  if (!refusal && state_.phase() != RunPhase::kRunning) {
    refusal = {RefusalKind::kStale, "the run is " + to_string(state_.phase()) +
                                        ": " + state_.reason()};
  }
  if (refusal) {
    ServerUnaryReactor* const reactor = context->DefaultReactor();
    after.add(
        [reactor, status = status_of(refusal)] { reactor->Finish(status); });
    return reactor;
  }
  constexpr int64_t kMaxWaitMs = 60000;
  const auto wait = std::chrono::milliseconds(
      std::clamp<int64_t>(request.timeout_ms(), 0, kMaxWaitMs));
  return delivery_.look_up(std::move(request), clock_.now(), wait, *response,
                           after);
}

Answer CoordinatorService::handle(TimePoint now, const Caller&,
                                  const wire::ReportFailureRequest& request,
                                  wire::ReportFailureResponse&) {
  auto failure = wire::from_message<wire::WorkerFailure>(request);
  if (failure.card_fault) {
    failure.card_fault->words =
        short_line(failure.card_fault->words, kMaxMessage);
    state_.card_failed(now, request.worker_id(), failure);
  } else {
    failure.message = short_line(failure.message, kMaxMessage);
    state_.worker_failed(now, request.worker_id(), failure);
  }
  return std::nullopt;
}

Answer CoordinatorService::handle(TimePoint now, const Caller&,
                                  const wire::LeaveGenerationRequest& request,
                                  wire::LeaveGenerationResponse&) {
  return refuse_for(
      RefusalKind::kNotAsAgreed,
      state_.generation_left(
          now, request.worker_id(),
          leaving_of(wire::from_message<wire::LeftGeneration>(request))));
}

Answer CoordinatorService::handle(TimePoint now, const Caller&,
                                  const wire::ReportExitRequest& request,
                                  wire::ReportExitResponse& response) {
  const RestartDecision decision =
      state_.worker_exited(now, request.worker_id(), request.exit_code(),
                           end_of_last_words(request.last_words()),
                           valid_utf8(request.host_memory().substr(0, 200)));
  response.set_restart(decision.restart);
  response.set_delay_ms(decision.delay.count());
  response.set_reason(valid_utf8(decision.reason));
  return std::nullopt;
}

Answer CoordinatorService::handle(TimePoint, const Caller& caller,
                                  const wire::CommitRequest& request,
                                  wire::CommitResponse&) {
  if (state_.generation().find(caller.identity.worker_id)->rank != 0) {
    return Refusal{RefusalKind::kForeignName,
                   "only rank 0 says which steps are committed"};
  }
  std::optional<wire::RunProgress> reported;
  if (request.has_progress()) {
    reported = wire::from_message<wire::RunProgress>(request.progress());
  }
  state_.committed(request.step(), reported);
  state_.note_writer(caller.identity.worker_id);
  wire::LogRecord record;
  wire::Progress& progress = *record.mutable_progress();
  progress = request.progress();
  progress.set_step(std::max(progress.step(), request.step()));
  journal_.add(record);
  log::debug(cat("commit: generation ", request.stamp().generation(), ", ",
                 request.step(), " steps, loss ", request.loss()));
  return std::nullopt;
}

Answer CoordinatorService::handle(TimePoint, const Caller& caller,
                                  const wire::ReportEventRequest& request,
                                  wire::ReportEventResponse&) {
  wire::EventRecord event = wire::from_wire(request.event());
  if (Answer refusal = limit_words(event)) return refusal;
  event.reporter = caller.identity.worker_id;
  if (event.event == EventKind::kNetwork) {
    if (const auto network = plan::parse_network(event.detail_json)) {
      state_.note_network(*network);
    }
  }
  if (event.event == EventKind::kSlowRank) {
    state_.note_speed(event.rank, event.warning ? event.reason : "");
  }
  delivery_.add_report(event);
  return std::nullopt;
}

Answer CoordinatorService::handle(TimePoint now, const Caller&,
                                  const wire::FinishRequest& request,
                                  wire::FinishResponse&) {
  auto finished = wire::from_message<wire::FinishedRun>(request);
  finished.reason = short_line(finished.reason, kMaxMessage);
  return refuse_for(RefusalKind::kNotAsAgreed,
                    state_.finish(now, request.worker_id(), finished));
}

Answer CoordinatorService::handle(TimePoint, const Caller&,
                                  const wire::GetStatusRequest&,
                                  wire::GetStatusResponse& response) {
  response = to_wire(status_locked());
  return std::nullopt;
}

grpc::ServerWriteReactor<wire::Event>* CoordinatorService::StreamEvents(
    CallbackServerContext* context, const wire::StreamEventsRequest* request) {
  AfterUnlock after;
  std::lock_guard lock(mutex_);
  Answer refusal = admit(*context, admission_.caller_of(*context));
  if (!refusal) {
    refusal = refuse_for(RefusalKind::kNoRoom,
                         delivery_.follower_error(context->peer()));
  }
  if (refusal) {
    count_refusal(context->peer(), *refusal);
    return new RefusedStream<wire::Event>(status_of(refusal));
  }
  return delivery_.follow_events(context->peer(), request->after_sequence(),
                                 after);
}

Answer CoordinatorService::handle(TimePoint now, const Caller&,
                                  const wire::DrainRequest& request,
                                  wire::DrainResponse&) {
  const std::string reason = short_line(request.reason(), kMaxReason);
  if (request.node_id().empty()) {
    state_.drain(now, reason);
  } else {
    state_.drain_node(now, request.node_id(), reason);
  }
  return std::nullopt;
}

Answer CoordinatorService::handle(TimePoint now, const Caller&,
                                  const wire::StopRequest& request,
                                  wire::StopResponse&) {
  state_.stop(now, short_line(request.reason(), kMaxReason));
  return std::nullopt;
}

}  // namespace headroom::coordinator
