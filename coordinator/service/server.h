// Server: the coordinator of one run, listening on a Unix socket or a TCP port.
//
// One server serves one run and then ends. It waits for workers, assigns ranks
// and a plan, and keeps their state until all of them got the outcome. It
// holds no tensor, and its interface has no gRPC types.
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

// Server reflection: gRPC's own service that lists the server's calls for tools
// like grpcurl. It is off by default, because it answers every client that TLS
// admits, even without the join token. Threads: as for ServerBuilder.

// Call it before BuildAndStart even if reflection is not wanted, because gRPC's
// library adds the service to every server of a process that links it.
void offer_reflection(grpc::ServerBuilder& builder, bool wanted);

struct ServerOptions {
  // "unix:/FOLDER/NAME" (channel_security.h), or HOST:PORT, where port 0 takes
  // any free port. A host beyond loopback (0.0.0.0 included) is refused without
  // certificates and a token, unless insecure_network is set.
  std::string listen = "127.0.0.1:0";
  // The configuration of the run, for all members.
  configs::RunConfig config;
  // Absolute; never changes. Once the folder exists, the coordinator appends
  // events.jsonl there; it does not create the folder.
  std::string run_directory;
  // The checkpoint that workers start from; "" means from the beginning.
  std::string resume_checkpoint;
  // Use the plan in the run directory (saved_plan.h).
  bool saved_plan = false;
  // Slots of all agents; the first generation waits for all of them.
  int expected_workers = 1;
  // The file that logs decisions (run_log.h): a coordinator that is restarted
  // with the same configuration and log continues the run in its directory.
  // With "" decisions are lost when the process ends.
  std::string log;
  // TLS, if it has certificates, and the join token.
  wire::ChannelSecurity security;
  // Allows plain control traffic beyond loopback, with a warning.
  bool insecure_network = false;
  // Share the port with the parent process, which reserves it (hold_address)
  // for coordinators that it may start later.
  bool shares_port = false;
  // This coordinator replaces an earlier one of the same run: the parent
  // process has kept the address for it, and the log has the run's records.
  bool is_successor = false;
  // Enables gRPC's server reflection.
  bool debug_reflection = false;
};

class Server {
 public:
  // Throws Error (exit 2, one line) if the address is beyond loopback without
  // the required security, or if the server cannot listen there. Throws Error
  // (exit 2 or 3) if no plan exists for this configuration with
  // expected_workers ranks. `clock` must outlive the server; null means the
  // system's clock.
  static std::unique_ptr<Server> start(const ServerOptions& options,
                                       const Clock* clock = nullptr);
  virtual ~Server() = default;

  // options.listen with the port in use. Its host may be 0.0.0.0, which clients
  // cannot use.
  virtual std::string address() const = 0;

  virtual RunStatus status() const = 0;
  // Numbers of refused calls, by reason.
  virtual std::map<std::string, int64_t> refused_calls() const = 0;

  // Ends the run at the next committed step, or at once if it has not begun.
  virtual void drain(const std::string& reason) = 0;

  // Waits until the run is over and its end was reported: workers have left,
  // live agents got an answer with the outcome, and followers have closed their
  // stream. After the run's end it waits at most 5 s for these. Returns false
  // if `timeout` passed first.
  virtual bool wait_until_over(std::chrono::milliseconds timeout) = 0;
  void wait_until_over() {
    while (!wait_until_over(std::chrono::hours(1))) {
    }
  }

  // Closes every stream and the port. Called by the destructor too.
  virtual void stop() = 0;
};

}  // namespace headroom::coordinator
