// ControlClient: the coordinator's service for agents and people, without
// tensors and without gRPC types.
//
//   agent    register_node, then node_orders() every few hundred ms and
//            report_exit for every worker that ends
//   people   status, stream_events, drain, stop
//
// Threads: any thread may call any method. register_node starts a thread that
// sends the node's heartbeats (every 250 ms), with those of the workers whose
// channels it was given, until the client is destroyed.
// Errors: every call has a deadline (5 s, or as stated): CommunicationError if
// the coordinator cannot be reached within it, Error (exit 2) if it refuses,
// for example because it is of another version.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/run/run_status.h"
#include "proto/beat_channel.h"
#include "proto/coordinator.pb.h"
#include "proto/reports.h"

namespace headroom::coordinator {

using wire::NodeRegistration;

// What the coordinator last answered to the node's heartbeats.
struct NodeOrders {
  bool stop_requested = false;  // workers know too; nothing to do for an agent
  // Workers of this node that are given up as lost (silent too long, or cut
  // off). REQUIRED of an agent: SIGKILL them if they still live; a stopped or
  // hung process frees its peers only so.
  std::vector<std::string> lost_worker_ids;
  bool run_over = false;  // finished or failed, with exit_code and reason
  int exit_code = 0;
  std::string reason;
  // Seconds since the last answer; they grow while the coordinator is away, or
  // refuses to answer.
  double silence_seconds = 0;
  std::string refusal;  // why it refused the last time; "" where it did not
};

class ControlClient {
 public:
  // `address` is HOST:PORT or a Unix socket's. The first call connects.
  static std::unique_ptr<ControlClient> connect(const std::string& address);
  virtual ~ControlClient() = default;

  // Waits up to `timeout` for a coordinator to answer. At most once per client.
  virtual wire::RegisterResponse register_node(
      const NodeRegistration& node,
      std::chrono::milliseconds timeout = std::chrono::seconds(30)) = 0;

  // The secret with which a worker of this node proves who it is.
  virtual std::string secret_of(const std::string& worker_id) const = 0;

  // Sends that worker's heartbeats from now on, while the channel is open.
  // `channel`: the agent's end.
  virtual void speak_for(const std::string& worker_id,
                         wire::BeatChannel channel) = 0;

  // Does not block. REQUIRES: register_node returned.
  virtual NodeOrders node_orders() const = 0;

  // Names successors in the places of workers whose ends were reported.
  // REQUIRES: register_node returned; the same node.
  virtual void register_successors(const NodeRegistration& node) = 0;

  // A worker has ended. `exit_code` is 128 + signal when one killed it;
  // `last_words` is the end of its stderr (at most 64 KiB are sent).
  virtual wire::ReportExitResponse report_exit(
      const std::string& worker_id, int exit_code,
      const std::string& last_words) = 0;

  virtual RunStatus status() = 0;

  // Calls `on_event` for every event after `after_sequence`, old ones first,
  // as they come, until it returns false or the coordinator ends the stream.
  // The coordinator stays for as long (at most 5 s after the run's end) as a
  // follower has not returned, so `on_event` may call status() for the result
  // when it sees kRunOver, which is the last one. Returns the sequence of
  // the last event seen. Throws CommunicationError if the connection breaks.
  virtual int64_t stream_events(
      int64_t after_sequence,
      const std::function<bool(const wire::EventRecord&)>& on_event) = 0;

  // Ends the run at the next committed step.
  virtual void drain(const std::string& reason) = 0;
  // This node's workers leave at the next committed step, and the run goes on
  // with the others.
  // REQUIRES: register_node returned.
  virtual void drain_node(const std::string& reason) = 0;
  // Ends the run and the coordinator now.
  virtual void stop(const std::string& reason) = 0;
};

}  // namespace headroom::coordinator
