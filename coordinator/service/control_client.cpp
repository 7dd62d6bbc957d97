#include "coordinator/service/control_client.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "coordinator/service/beat_gatherer.h"
#include "coordinator/service/status_messages.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/utf8.h"
#include "proto/channel.h"
#include "proto/connection_fault.h"
#include "proto/convert.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/version.h"

namespace headroom::coordinator {

// Fields of the answer to a node's heartbeat.
HEADROOM_FIELDS(NodeOrders, stop_requested, lost_worker_ids, run_over,
                exit_code, reason, folder)

namespace {

using std::chrono::milliseconds;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr milliseconds kCallTimeout{5000};
constexpr milliseconds kHeartbeatTimeout{1000};
constexpr milliseconds kMaxPause{1000};
// If no answer arrives for this long, the client examines its connection.
constexpr milliseconds kFirstLook{3000};

void set_deadline(grpc::ClientContext& context, milliseconds timeout) {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
}

wire::RegisterRequest request_of(const NodeRegistration& node) {
  auto request = wire::to_message<wire::RegisterRequest>(node);
  request.set_version(wire::kVersion);
  return request;
}

class GrpcControlClient final : public ControlClient {
 public:
  explicit GrpcControlClient(const std::string& address)
      : address_(address),
        stub_(
            wire::Coordinator::NewStub(wire::make_channel(address)).release()) {
  }

  ~GrpcControlClient() override {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    if (heartbeats_.joinable()) heartbeats_.join();
  }

  wire::RegisterResponse register_node(const NodeRegistration& node,
                                       milliseconds timeout) override {
    HEADROOM_CHECK(!heartbeats_.joinable(), "a client registers one node");
    const wire::RegisterRequest request = request_of(node);
    stub_.reset(wire::Coordinator::NewStub(
                    wire::make_channel(address_, wire::channel_security(),
                                       {.node_id = request.node_id(),
                                        .worker_id = "",
                                        .secret = secret_}))
                    .release());
    const wire::RegisterResponse response = send_registration(request, timeout);
    node_id_ = request.node_id();
    run_digest_ = response.run_digest();
    last_answer_ = std::chrono::steady_clock::now();
    heartbeats_ = std::thread([this] { send_heartbeats(); });
    return response;
  }

  void speak_for(const std::string& worker_id,
                 wire::BeatChannel channel) override {
    beats_.add(worker_id, std::move(channel));
  }

  NodeOrders node_orders() const override {
    std::lock_guard lock(mutex_);
    NodeOrders orders = orders_;
    orders.refusal = refusal_;
    orders.silence_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                      last_answer_)
            .count();
    return orders;
  }

  void register_successors(const NodeRegistration& node) override {
    send_registration(request_of(node), kCallTimeout);
  }

  std::string secret_of(const std::string& worker_id) const override {
    return wire::secret_of_worker(secret_, valid_utf8(worker_id));
  }

  wire::ReportExitResponse report_exit(
      const std::string& worker_id, int exit_code,
      const std::string& last_words, const std::string& host_memory) override {
    constexpr size_t kMaxLastWords = 64 << 10;
    const size_t skip = last_words.size() > kMaxLastWords
                            ? last_words.size() - kMaxLastWords
                            : 0;
    wire::ReportExitRequest request;
    request.set_node_id(node_id_);
    request.set_worker_id(worker_id);
    request.set_exit_code(exit_code);
    request.set_last_words(valid_utf8(last_words.substr(skip)));
    request.set_host_memory(valid_utf8(host_memory));
    // Processes outlive generations, so the stamp has no generation.
    request.mutable_stamp()->set_run_digest(run_digest_);
    return call(&Stub::ReportExit, request, "reporting an exit to ",
                /*waits=*/true);
  }

  RunStatus status() override {
    return from_wire(
        call(&Stub::GetStatus, wire::GetStatusRequest(), "asking "));
  }

  int64_t stream_events(
      int64_t after_sequence,
      const std::function<bool(const wire::EventRecord&)>& on_event) override {
    wire::StreamEventsRequest request;
    request.set_after_sequence(after_sequence);
    // This is the only call without a deadline, because the stream lasts as
    // long as the run. Keep-alive ends the call if the coordinator's machine is
    // gone.
    grpc::ClientContext context;
    const auto reader = stub_->StreamEvents(&context, request);
    int64_t last = after_sequence;
    wire::Event message;
    while (reader->Read(&message)) {
      last = message.sequence();
      if (!on_event(wire::from_wire(message))) {
        context.TryCancel();
        reader->Finish();
        return last;
      }
    }
    const grpc::Status status = reader->Finish();
    if (!status.ok())
      wire::throw_failure(status, "following " + whom(), address_);
    return last;
  }

  void drain(const std::string& reason) override { drain("", reason); }
  void drain_node(const std::string& reason) override {
    drain(node_id_, reason);
  }

  void stop(const std::string& reason) override {
    wire::StopRequest request;
    request.set_reason(valid_utf8(reason));
    call(&Stub::Stop, request, "stopping ");
  }

 private:
  using Stub = wire::Coordinator::Stub;

  // `doing` begins the message of a failure. `waits`: if the coordinator is not
  // reachable yet, the call waits for it until the deadline.
  template <typename Request, typename Response>
  Response call(grpc::Status (Stub::*method)(grpc::ClientContext*,
                                             const Request&, Response*),
                const Request& request, const std::string& doing,
                bool waits = false) {
    Response response;
    grpc::ClientContext context;
    context.set_wait_for_ready(waits);
    set_deadline(context, kCallTimeout);
    const grpc::Status status =
        (stub_.get()->*method)(&context, request, &response);
    if (!status.ok()) wire::throw_failure(status, doing + whom(), address_);
    return response;
  }

  // Tries again while the coordinator is unreachable or too busy.
  wire::RegisterResponse send_registration(const wire::RegisterRequest& request,
                                           milliseconds timeout) {
    const auto end = std::chrono::system_clock::now() + timeout;
    for (milliseconds pause{50};; pause = std::min(2 * pause, kMaxPause)) {
      wire::RegisterResponse response;
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(
          std::min(end, std::chrono::system_clock::now() + kFirstLook));
      const grpc::Status status = stub_->Register(&context, request, &response);
      if (status.ok()) return response;
      const bool is_late = std::chrono::system_clock::now() + pause >= end;
      if (!wire::is_unreachable(status) || is_late || is_in_vain()) {
        wire::throw_failure(status, "registering with " + whom(), address_);
      }
      std::this_thread::sleep_for(pause);
    }
  }

  bool is_in_vain() const {
    const auto fault =
        wire::connection_fault(address_, wire::channel_security());
    return fault && fault->is_lasting;
  }

  void drain(const std::string& node_id, const std::string& reason) {
    wire::DrainRequest request;
    request.set_reason(valid_utf8(reason));
    request.set_node_id(node_id);
    call(&Stub::Drain, request, "draining ");
  }

  std::string whom() const { return "the coordinator at " + address_; }

  void send_heartbeats() {
    wire::HeartbeatRequest request;
    request.mutable_stamp()->set_run_digest(run_digest_);
    request.set_node_id(node_id_);
    std::unique_lock lock(mutex_);
    while (!ending_) {
      lock.unlock();
      beats_.gather(std::chrono::steady_clock::now(), request);
      wire::HeartbeatResponse response;
      grpc::ClientContext context;
      set_deadline(context, kHeartbeatTimeout);
      // Also waits while the coordinator is unreachable, because gRPC connects
      // only while a call waits.
      context.set_wait_for_ready(true);
      const grpc::Status status =
          stub_->Heartbeat(&context, request, &response);
      beats_.hand_back(status, response);
      lock.lock();
      if (status.ok()) {
        take_orders(response);
      } else {
        log::debug("heartbeat of node " + node_id_ + ": " +
                   status.error_message());
        const bool is_answered =
            status.error_code() != grpc::StatusCode::UNAVAILABLE &&
            status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
        refusal_ = is_answered ? status.error_message() : "";
      }
      changed_.wait_for(lock, wire::kHeartbeatInterval,
                        [&] { return ending_; });
    }
  }

  void take_orders(const wire::HeartbeatResponse& response) {
    last_answer_ = std::chrono::steady_clock::now();
    refusal_.clear();
    orders_ = wire::from_message<NodeOrders>(response);
  }

  const std::string address_;
  const std::string secret_ = wire::new_member_secret();
  wire::GrpcOwner<Stub> stub_;  // constant once registered
  std::string node_id_;         // constant once registered
  std::string run_digest_;      // constant once registered
  BeatGatherer beats_;
  std::thread heartbeats_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  NodeOrders orders_;
  std::string refusal_;
  SteadyTime last_answer_;
  bool ending_ = false;
};

}  // namespace

std::unique_ptr<ControlClient> ControlClient::connect(
    const std::string& address) {
  return std::make_unique<GrpcControlClient>(address);
}

}  // namespace headroom::coordinator
