// CoordinatorService: gRPC around RunState. Messages in, the pure state under
// one mutex, messages out; it decides nothing.
//
// What waits (streams of assignments and events, lookups of keys that are not
// there yet) holds no thread: gRPC's callback interface, and lists here.
//
// Threads: gRPC calls the handlers from its own threads; the server's tick
// thread calls tick(). No gRPC operation starts while the mutex is held
// (message_stream.h).
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "coordinator/log/run_log.h"
#include "coordinator/run/clock.h"
#include "coordinator/run/rendezvous_keys.h"
#include "coordinator/run/run_state.h"
#include "coordinator/service/call_guard.h"
#include "coordinator/service/event_log.h"
#include "coordinator/service/message_stream.h"
#include "proto/coordinator.grpc.pb.h"

namespace headroom::coordinator {

// What every worker and agent is told of the run.
struct RunIdentity {
  std::string run_config_yaml;
  std::string run_directory;
  std::string resume_checkpoint;
  std::string run_digest;  // of the three above
};

class CoordinatorService final : public wire::Coordinator::CallbackService {
 public:
  // `clock` must outlive the service. With a log that holds a run the service
  // goes on with it; null: nothing outlives this process.
  CoordinatorService(const RunIdentity& identity, const RunOptions& options,
                     const configs::RunConfig& config, const Clock& clock,
                     std::unique_ptr<RunLog> log = nullptr,
                     const std::string& token = "");
  ~CoordinatorService() override;

  // REQUIRED about 20 times a second, from one thread.
  void tick();

  RunStatus status();
  // Calls that were refused, by reason.
  std::map<std::string, int64_t> refused_calls();
  // A connection that ended before it could call: counted and logged like them.
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
  class PendingLookup;
  using AssignmentStream = MessageStream<wire::Assignment>;
  using EventStream = MessageStream<wire::Event>;
  struct Watcher {
    AssignmentStream* stream = nullptr;
    std::deque<wire::Assignment> queue;
  };
  struct Follower {
    EventStream* stream = nullptr;
    int64_t last_sequence = 0;
  };

  // Runs `body` under the mutex, delivers what follows, answers its status.
  // What it changed is in the log before: but for calls that are only heard.
  enum class Call { kChanges, kIsHeard, kJoins };
  grpc::ServerUnaryReactor* answer(
      grpc::CallbackServerContext* context, int64_t request_bytes,
      int64_t max_request_bytes,
      const std::function<grpc::Status(TimePoint)>& body,
      Call call = Call::kChanges);

  // --- service_log.cpp ---
  void restore();
  bool is_readopted(const std::string& worker_id,
                    const std::string& node_id) const;
  void send_again(const std::string& worker_id, int64_t last_order,
                  Watcher& watcher);
  int64_t number_order(const Order& order);
  wire::LogSnapshot snapshot() const;
  void save_snapshot();
  void sync_log();
  // A log that cannot be written is given up with a warning.
  void with_log(const std::function<void()>& write);

  // The mutex is held in all of these.
  grpc::Status admit(const grpc::CallbackServerContext& context, bool joins);
  void count_refusal(const grpc::CallbackServerContext& context,
                     const grpc::Status& status);
  grpc::Status check_stamp(const wire::Stamp& stamp, bool before_first) const;
  void deliver(AfterUnlock& after);
  void deliver_orders(AfterUnlock& after);
  void deliver_event(const wire::EventRecord& record);
  void end_lookups(AfterUnlock& after, const grpc::Status& status);
  wire::Assignment assignment_for(const Order& order) const;
  RunStatus status_locked() const;

  const RunIdentity identity_;
  const Clock& clock_;

  std::mutex mutex_;
  std::condition_variable over_changed_;
  CallGuard guard_;
  RunState state_;
  RendezvousKeys keys_;
  uint64_t keys_generation_ = 0;
  EventLog events_;
  std::vector<std::string> unwritten_;       // lines for the event file
  std::map<std::string, Watcher> watchers_;  // by worker_id
  std::list<Follower> followers_;
  std::list<PendingLookup*> lookups_;
  bool everybody_told_ = false;
  bool closed_ = false;

  const std::unique_ptr<RunLog> log_;  // may be null
  std::atomic<bool> log_failed_ = false;
  uint64_t term_ = 1;                                       // of the log
  std::map<std::string, wire::LoggedOrder> newest_orders_;  // by worker_id

  wire::EventFile event_file_;  // the tick thread's
};

}  // namespace headroom::coordinator
