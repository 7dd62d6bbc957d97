// CoordinatorService: the calls of coordinator.proto. A call is admitted
// (call_admission.h) and changes the pure state (coordinator/run) under one
// mutex; then the changes are logged (run_journal.h, group_commit.h) and
// delivered (delivery.h). The service decides nothing.
//
// Threads: gRPC calls the handlers from its own threads; the server's tick
// thread calls tick(). No gRPC operation starts while the mutex is held
// (message_stream.h).
#pragma once

#include <grpcpp/grpcpp.h>

#include <concepts>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "coordinator/log/run_log.h"
#include "coordinator/run/clock.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/call_admission.h"
#include "coordinator/service/caller_rules.h"
#include "coordinator/service/connections.h"
#include "coordinator/service/delivery.h"
#include "coordinator/service/group_commit.h"
#include "coordinator/service/message_stream.h"
#include "coordinator/service/run_journal.h"
#include "proto/channel.h"
#include "proto/coordinator.grpc.pb.h"

namespace headroom::coordinator {

// Lookup answers with bytes instead of a message, so that thousands of ranks
// that look up one long value share its bytes (Delivery::look_up).
using CoordinatorCalls = wire::Coordinator::WithRawCallbackMethod_Lookup<
    wire::Coordinator::CallbackService>;

class CoordinatorService final : public CoordinatorCalls {
 public:
  // The clock and the connections must outlive the service; `connections` is
  // null on a Unix socket. If the log holds a run, the service continues it;
  // without a log nothing survives this process.
  CoordinatorService(const RunIdentity& identity, const RunOptions& options,
                     const configs::RunConfig& config, const Clock& clock,
                     Connections* connections,
                     std::unique_ptr<RunLog> log = nullptr,
                     const std::string& token = "");
  ~CoordinatorService() override;

  // One thread calls it about 20 times a second.
  void tick();

  RunStatus status();
  // Numbers of refused calls by kind.
  std::map<std::string, int64_t> refused_calls();
  // Counts and logs a connection that was refused or closed.
  void connection_refused(const std::string& why);
  void drain(const std::string& reason);
  bool wait_until_over(std::chrono::milliseconds timeout);

  // Writes the last events; if another machine has the run's folder, into the
  // folder of that path here.
  void leave_events();
  void close();

  // --- the calls of coordinator.proto ---------------------------------------
  grpc::ServerWriteReactor<wire::Assignment>* Watch(
      grpc::CallbackServerContext* context,
      const wire::WatchRequest* request) override;
  grpc::ServerWriteReactor<wire::Event>* StreamEvents(
      grpc::CallbackServerContext* context,
      const wire::StreamEventsRequest* request) override;
  grpc::ServerUnaryReactor* Lookup(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;

 private:
  template <typename Request, typename... Others>
  static constexpr bool kIsOneOf = (std::same_as<Request, Others> || ...);
  // Changes are logged before the reply, except for these frequent calls.
  template <typename Request>
  static constexpr bool kChangesRun =
      !kIsOneOf<Request, wire::HeartbeatRequest, wire::PublishRequest,
                wire::CommitRequest, wire::GetStatusRequest>;
  // Events and results may be longer than other messages.
  template <typename Request>
  static constexpr int kMostBytes =
      kIsOneOf<Request, wire::LeaveGenerationRequest, wire::ReportEventRequest,
               wire::FinishRequest>
          ? wire::kMaxReportBytes
          : wire::kMaxMessageBytes;

  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext& context,
                                   const Request& request, Response& response) {
    return answer(context, kChangesRun<Request>,
                  [&](TimePoint now, const Caller& caller) -> Answer {
                    Answer refusal = check_length(request, kMostBytes<Request>);
                    if (!refusal) refusal = rules_.check(caller, request);
                    return refusal ? refusal
                                   : handle(now, caller, request, response);
                  });
  }
  using Body = std::function<Answer(TimePoint, const Caller&)>;
  // Runs `body` under the mutex, delivers its effects, and answers.
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext& context,
                                   bool changes_run, const Body& body);

  // The calls that answer() runs: CallerRules checks each call, then the
  // handle() for its request answers it with the mutex held.
#define HEADROOM_CALL(Name)                                                 \
  grpc::ServerUnaryReactor* Name(grpc::CallbackServerContext* context,      \
                                 const wire::Name##Request* request,        \
                                 wire::Name##Response* response) override { \
    return answer(*context, *request, *response);                           \
  }                                                                         \
  Answer handle(TimePoint now, const Caller& caller,                        \
                const wire::Name##Request& request,                         \
                wire::Name##Response& response);
  HEADROOM_CALL(Register)
  HEADROOM_CALL(Heartbeat)
  HEADROOM_CALL(Publish)
  HEADROOM_CALL(ReportFailure)
  HEADROOM_CALL(LeaveGeneration)
  HEADROOM_CALL(ReportExit)
  HEADROOM_CALL(Commit)
  HEADROOM_CALL(ReportEvent)
  HEADROOM_CALL(Finish)
  HEADROOM_CALL(GetStatus)
  HEADROOM_CALL(Drain)
  HEADROOM_CALL(Stop)
#undef HEADROOM_CALL

  // REQUIRES, for the functions below: the mutex is held.
  Answer admit(const grpc::CallbackServerContext& context,
               const Caller& caller);
  bool has_part(const Caller& caller) const;
  void count_refusal(const std::string& peer, const Refusal& refusal);
  void note_heartbeat(const Caller& caller, const std::string& member);
  void note_successor_of(TimePoint now, const Node& successor);
  Answer join(TimePoint now, const Caller& caller,
              const wire::WatchRequest& request);
  bool is_readopted(const std::string& worker_id,
                    const std::string& node_id) const;
  void publish_changes(AfterUnlock& after);
  RunStatus status_locked() const;
  void restore();

  const RunIdentity identity_;
  const Clock& clock_;
  Connections* const connections_;

  std::mutex mutex_;
  std::condition_variable over_changed_;
  CallAdmission admission_;
  RunState state_;
  const CallerRules rules_;
  RunJournal journal_;
  Delivery delivery_;
  GroupCommit commit_;
  bool everybody_told_ = false;
  bool closed_ = false;

  wire::EventFile event_file_;  // used only by the tick thread
};

}  // namespace headroom::coordinator
