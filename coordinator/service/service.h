// CoordinatorService: the calls of coordinator.proto. A call is let in
// (call_admission.h), changes the pure state (coordinator/run) under one mutex,
// and what follows from it is written down (run_journal.h, group_commit.h) and
// delivered (delivery.h). The service decides nothing.
//
// Threads: gRPC calls the handlers from its own threads; the server's tick
// thread calls tick(). No gRPC operation starts while the mutex is held
// (message_stream.h).
#pragma once

#include <grpcpp/grpcpp.h>

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
#include "proto/coordinator.grpc.pb.h"

namespace headroom::coordinator {

class CoordinatorService final : public wire::Coordinator::CallbackService {
 public:
  // The clock and the connections must outlive the service; `connections` is
  // null on a Unix socket. With a log that holds a run the service goes on with
  // it; without a log nothing outlives this process.
  CoordinatorService(const RunIdentity& identity, const RunOptions& options,
                     const configs::RunConfig& config, const Clock& clock,
                     Connections* connections,
                     std::unique_ptr<RunLog> log = nullptr,
                     const std::string& token = "");
  ~CoordinatorService() override;

  // One thread calls it about 20 times a second.
  void tick();

  RunStatus status();
  // How many calls were refused, by kind.
  std::map<std::string, int64_t> refused_calls();
  // Counts and logs a connection that was ended, or never made a call.
  void connection_refused(const std::string& why);
  void drain(const std::string& reason);
  bool wait_until_over(std::chrono::milliseconds timeout);

  // Ends every stream and lookup and refuses new ones.
  void close();

  // --- the calls of coordinator.proto ---------------------------------------
  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const wire::RegisterRequest* request,
                                     wire::RegisterResponse* response) override;
  grpc::ServerWriteReactor<wire::Assignment>* Watch(
      grpc::CallbackServerContext* context,
      const wire::WatchRequest* request) override;
  grpc::ServerUnaryReactor* Heartbeat(
      grpc::CallbackServerContext* context,
      const wire::HeartbeatRequest* request,
      wire::HeartbeatResponse* response) override;
  grpc::ServerUnaryReactor* Publish(grpc::CallbackServerContext* context,
                                    const wire::PublishRequest* request,
                                    wire::PublishResponse* response) override;
  grpc::ServerUnaryReactor* Lookup(grpc::CallbackServerContext* context,
                                   const wire::LookupRequest* request,
                                   wire::LookupResponse* response) override;
  grpc::ServerUnaryReactor* ReportFailure(
      grpc::CallbackServerContext* context,
      const wire::ReportFailureRequest* request,
      wire::ReportFailureResponse* response) override;
  grpc::ServerUnaryReactor* LeaveGeneration(
      grpc::CallbackServerContext* context,
      const wire::LeaveGenerationRequest* request,
      wire::LeaveGenerationResponse* response) override;
  grpc::ServerUnaryReactor* ReportExit(
      grpc::CallbackServerContext* context,
      const wire::ReportExitRequest* request,
      wire::ReportExitResponse* response) override;
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context,
                                   const wire::CommitRequest* request,
                                   wire::CommitResponse* response) override;
  grpc::ServerUnaryReactor* ReportEvent(
      grpc::CallbackServerContext* context,
      const wire::ReportEventRequest* request,
      wire::ReportEventResponse* response) override;
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                   const wire::FinishRequest* request,
                                   wire::FinishResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(
      grpc::CallbackServerContext* context,
      const wire::GetStatusRequest* request,
      wire::GetStatusResponse* response) override;
  grpc::ServerWriteReactor<wire::Event>* StreamEvents(
      grpc::CallbackServerContext* context,
      const wire::StreamEventsRequest* request) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const wire::DrainRequest* request,
                                  wire::DrainResponse* response) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context,
                                 const wire::StopRequest* request,
                                 wire::StopResponse* response) override;

 private:
  // Changes are logged before the reply, except for heartbeats (kIsHeard).
  enum class Call { kChanges, kIsHeard };
  using Body = std::function<Answer(TimePoint, const Caller&)>;
  // Runs `body` under the mutex, delivers what follows, answers.
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context,
                                   int64_t request_bytes,
                                   int64_t max_request_bytes, const Body& body,
                                   Call call = Call::kChanges);

  // The mutex is held in all of these.
  Answer admit(const grpc::CallbackServerContext& context,
               const Caller& caller);
  void count_refusal(const grpc::CallbackServerContext& context,
                     const Refusal& refusal);
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

  wire::EventFile event_file_;  // the tick thread's
};

}  // namespace headroom::coordinator
