// ControlClient: lets agents and users call the coordinator. Its interface has
// no tensors and no gRPC types.
//
//   agent    register_node, then node_orders() every few hundred ms and
//            report_exit for every worker that ends
//   user     status, stream_events, drain, stop
//
// Threads: any thread may call any method. register_node starts a thread that
// sends the node's heartbeats (every 250 ms), together with the heartbeats of
// workers with an open channel, until the client is destroyed. Errors: every
// call has a deadline (5 s, or as stated): CommunicationError if the
// coordinator cannot be reached before the deadline, Error (exit 2) if the
// coordinator refuses, for example because it is of another version.
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

// The coordinator's last answer to the node's heartbeats.
struct NodeOrders {
  bool stop_requested = false;  // for information: workers get the request too
  // Workers of this node that count as lost (silent too long, or cut off).
  // An agent must send SIGKILL to those that still run, because peers of a
  // stopped or hung process wait for its end.
  std::vector<std::string> lost_worker_ids;
  bool run_over = false;  // finished or failed, with exit_code and reason
  int exit_code = 0;
  std::string reason;
  FolderPlace folder;  // the machine that has the run's folder
  // Seconds since the last answer. They grow while the coordinator is
  // unreachable or refuses to answer.
  double silence_seconds = 0;
  std::string refusal;  // the coordinator's last refusal; "" if it answered
};

class ControlClient {
 public:
  // `address` is HOST:PORT or the address of a Unix socket. The first call
  // connects.
  static std::unique_ptr<ControlClient> connect(const std::string& address);
  virtual ~ControlClient() = default;

  // Waits up to `timeout` for a coordinator to answer. Call it at most once.
  virtual wire::RegisterResponse register_node(
      const NodeRegistration& node,
      std::chrono::milliseconds timeout = std::chrono::seconds(30)) = 0;

  // The secret that proves the identity of a worker of this node.
  virtual std::string secret_of(const std::string& worker_id) const = 0;

  // From now on sends this worker's heartbeats while its channel is open.
  // `channel` is the agent's end of that channel.
  virtual void speak_for(const std::string& worker_id,
                         wire::BeatChannel channel) = 0;

  // Does not block. REQUIRES: register_node returned.
  virtual NodeOrders node_orders() const = 0;

  // Registers successors for workers whose ends were reported. REQUIRES:
  // register_node returned, and `node` is the same node.
  virtual void register_successors(const NodeRegistration& node) = 0;

  // Reports that a worker has ended. `exit_code`: 128 + signal if a signal
  // killed it. `last_words`: the end of its stderr (at most 64 KiB are sent).
  // `host_memory`: the limit at which the kernel killed it because the host's
  // memory ran out; "" if it did not.
  virtual wire::ReportExitResponse report_exit(
      const std::string& worker_id, int exit_code,
      const std::string& last_words, const std::string& host_memory = "") = 0;

  virtual RunStatus status() = 0;

  // Calls `on_event` for every event after `after_sequence`, oldest first,
  // until it returns false or the coordinator ends the stream. After the run's
  // end the coordinator waits (at most 5 s) for followers to return, so
  // `on_event` may call status() for the result when it gets kRunOver, the last
  // event. Returns the last event's sequence. Throws CommunicationError if the
  // connection breaks.
  virtual int64_t stream_events(
      int64_t after_sequence,
      const std::function<bool(const wire::EventRecord&)>& on_event) = 0;

  // Ends the run at the next committed step.
  virtual void drain(const std::string& reason) = 0;
  // This node's workers leave at the next committed step; the run continues on
  // the other nodes. REQUIRES: register_node returned.
  virtual void drain_node(const std::string& reason) = 0;
  // Ends the run and the coordinator now.
  virtual void stop(const std::string& reason) = 0;
};

}  // namespace headroom::coordinator
