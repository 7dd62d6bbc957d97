// Server: the coordinator of one run, listening on a Unix socket or a TCP port.
//
// One server serves one run and then ends: it waits for its workers, gives them
// ranks and a plan, and keeps their state until all of them know the outcome.
// It holds no tensor, and no gRPC type shows here.
//
//   auto server = Server::start(options);
//   write_address(server->address());
//   server->wait_until_over();
//   server->stop();
//   return server->status().exit_code;
//
// Threads: any thread may call any method; gRPC's threads and one tick thread
// serve in the background until stop().
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "configs/run_config.h"
#include "coordinator/run/clock.h"
#include "coordinator/run/run_status.h"
#include "proto/channel_security.h"

#include <grpcpp/server_builder.h>

namespace headroom::coordinator {

// Server reflection: gRPC's own service that tells callers which calls there
// are, for grpcurl and the like. It answers only where it is asked for, because
// it answers everyone whom TLS lets in, with or without the join token.
//
// Threads: as ServerBuilder.

// REQUIRED before BuildAndStart, wanted or not: gRPC's library adds the service
// to every server of a process that it is linked to.
void offer_reflection(grpc::ServerBuilder& builder, bool wanted);

struct ServerOptions {
  // "unix:/FOLDER/NAME" (channel_security.h), or HOST:PORT, where port 0 takes
  // any free one. A host beyond loopback (0.0.0.0 included) is refused without
  // certificates and a token, unless insecure_network.
  std::string listen = "127.0.0.1:0";
  // The configuration of the run, for all members.
  configs::RunConfig config;
  // Absolute, chosen once. events.jsonl is appended here as soon as the folder
  // exists; the coordinator is its only writer and does not create the folder.
  std::string run_directory;
  // A checkpoint folder that the workers start from; "" from the start.
  std::string resume_checkpoint;
  // Go on under the plan that the run directory holds (saved_plan.h).
  bool saved_plan = false;
  // All agents' slots together, with which the first generation starts.
  int expected_workers = 1;
  // The file to which decisions are written (run_log.h): a coordinator that is
  // started again with the same configuration and log goes on with the run, in
  // its run directory. With "" they are lost with this process.
  std::string log;
  // The server's side: TLS where it has certificates, and the join token.
  wire::ChannelSecurity security;
  // Plain control traffic beyond loopback, logged as a warning.
  bool insecure_network = false;
  // The process that started this one reserves the port (hold_address) for the
  // coordinators that it may start later: the port is shared with it.
  bool shares_port = false;
  // A coordinator was started here before: the address is reserved, and the log
  // has its run.
  bool is_successor = false;
  // gRPC's server reflection is answered.
  bool debug_reflection = false;
};

class Server {
 public:
  // Throws Error (exit 2, one line) if the address cannot be listened on, is
  // beyond loopback, or if no plan exists for this configuration with
  // expected_workers ranks (exit 2 or 3). `clock` must outlive the server;
  // null: the system's.
  static std::unique_ptr<Server> start(const ServerOptions& options,
                                       const Clock* clock = nullptr);
  virtual ~Server() = default;

  // What was asked for, with the port in use. The host is the one of `listen`,
  // which is no address to connect to if it is 0.0.0.0.
  virtual std::string address() const = 0;

  virtual RunStatus status() const = 0;
  // Calls that were refused, by reason.
  virtual std::map<std::string, int64_t> refused_calls() const = 0;

  // Ends the run at the next committed step, or at once if it has not begun.
  virtual void drain(const std::string& reason) = 0;

  // Waits until the run is finished or failed and everybody was told: workers
  // have left, live agents have had an answered heartbeat that says so, and
  // followers of the events have closed their stream; at most 5 s after the
  // end. False if `timeout` passed first.
  virtual bool wait_until_over(std::chrono::milliseconds timeout) = 0;
  void wait_until_over() {
    while (!wait_until_over(std::chrono::hours(1))) {
    }
  }

  // Closes every stream and the port. Called by the destructor too.
  virtual void stop() = 0;
};

}  // namespace headroom::coordinator
