#include "coordinator/service/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/resource_quota.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "configs/card_measurements.h"
#include "coordinator/log/run_log.h"
#include "coordinator/run/restart_policy.h"
#include "coordinator/service/connections.h"
#include "coordinator/service/front_door.h"
#include "coordinator/service/greeting.h"
#include "coordinator/service/listen_address.h"
#include "coordinator/service/service.h"
#include "parallel/base/check.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/log.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/saved_plan.h"
#include "proto/channel.h"

namespace headroom::coordinator {
namespace {

class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*
                         plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) {
      return plugin->name() == "proto_server_reflection";
    });
  }
};

}  // namespace

void offer_reflection(grpc::ServerBuilder& builder, bool wanted) {
  if (wanted) {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  } else {
    builder.SetOption(std::make_unique<WithoutReflection>());
  }
}

namespace {

constexpr std::chrono::milliseconds kTickInterval{50};
// Streams end before this limit, which is for clients that do not read.
constexpr std::chrono::milliseconds kShutdownTimeout{1000};

RunIdentity identify(const ServerOptions& options) {
  RunIdentity identity;
  identity.run_config_yaml = configs::to_yaml(options.config);
  identity.run_directory = options.run_directory;
  identity.resume_checkpoint = options.resume_checkpoint;
  const std::string all = identity.run_config_yaml + '\0' +
                          identity.run_directory + '\0' +
                          identity.resume_checkpoint;
  char text[17];
  std::snprintf(
      text, sizeof(text), "%016llx",
      static_cast<unsigned long long>(XXH3_64bits(all.data(), all.size())));
  identity.run_digest = text;
  return identity;
}

RunOptions run_options(const ServerOptions& options,
                       const std::vector<layers::LayerCost>& layers) {
  RunOptions run;
  run.layers = layers;
  run.measurements = configs::all_measurements([](const std::string& fault) {
    log::warn("plans assume the speed of these cards: " + fault);
  });
  run.quorum.expected_workers = options.expected_workers;
  run.run_directory = options.run_directory;
  run.run_id = wire::draw_token().substr(0, 16);
  run.first_host = this_host_name();
  return run;
}

// Sets the directory, checkpoint and end of `options` to those of the logged
// run, which never change. Returns true if the run has had a generation.
bool go_on(ServerOptions& options, const LoggedRun& found) {
  const wire::LogSnapshot& snapshot = found.snapshot;
  // --time counts from the run's start, not from the coordinator's restart.
  const configs::RunConfig logged =
      configs::parse_run_config(snapshot.run_config_yaml(), options.log);
  options.config.ends_at = logged.ends_at;
  // An older log lacks the keys that are new since.
  const std::string own = configs::to_yaml(options.config);
  if (snapshot.run_config_yaml() != own && configs::to_yaml(logged) != own) {
    throw Error(
        kLogTag,
        options.log + " is of another run, of " + snapshot.run_directory(),
        "start the coordinator with that run's flags, or name another "
        "log");
  }
  options.run_directory = snapshot.run_directory();
  options.resume_checkpoint = snapshot.resume_checkpoint();
  return snapshot.state().generation().number() > 0;
}

// Empty for a Unix socket: its folder's mode keeps other users out.
std::optional<ListenAddress> network_address(const ServerOptions& options) {
  if (wire::is_unix_socket(options.listen)) return std::nullopt;
  const ListenAddress listen = parse_listen_address(options.listen);
  wire::require_protected(listen.to_string(), options.security,
                          options.insecure_network);
  if (wire::is_loopback(listen.host) || options.security.is_encrypted()) {
    return listen;
  }
  log::warn("[coordinator] " + listen.to_string() +
            " carries unprotected control traffic beyond this machine "
            "(--insecure-network)");
  return listen;
}

uint64_t max_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// Whether a client shows a token or a certificate before gRPC reads its bytes.
bool checks_strangers(const ServerOptions& options) {
  return options.security.is_encrypted() ||
         (!options.security.token.empty() && !options.debug_reflection);
}

class GrpcServer final : public Server {
 public:
  GrpcServer(const ServerOptions& options, const RunOptions& run,
             const Clock& clock, std::unique_ptr<RunLog> log)
      : address_(options.listen),
        network_(network_address(options)),
        connections_(connection_limits(max_descriptors(),
                                       options.expected_workers,
                                       checks_strangers(options))),
        service_(identify(options), run, options.config, clock,
                 network_ ? &connections_ : nullptr, std::move(log),
                 options.security.token) {
    if (network_) {
      door_ = std::make_unique<FrontDoor>(
          *network_, connections_, clock,
          FrontDoor::Port{
              .shares_port = options.shares_port,
              .is_held = options.is_successor,
              .reads_greetings = !options.security.is_encrypted(),
              // Debugging tools compress the token, so it is not found here.
              .token = options.debug_reflection ? "" : options.security.token});
      address_ = network_->to_string();
    }
    build(options);
    start_threads();
  }

  ~GrpcServer() override { stop(); }

  std::string address() const override { return address_; }
  RunStatus status() const override { return service_.status(); }
  std::map<std::string, int64_t> refused_calls() const override {
    return service_.refused_calls();
  }
  void drain(const std::string& reason) override { service_.drain(reason); }
  bool wait_until_over(std::chrono::milliseconds timeout) override {
    return service_.wait_until_over(timeout);
  }

  void stop() override {
    std::lock_guard lock(stop_mutex_);
    if (stopping_.exchange(true)) return;
    if (door_) door_->stop();
    ticker_.join();
    service_.close();
    server_->GetHealthCheckService()->SetServingStatus(false);
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownTimeout);
    server_->Wait();
    service_.leave_events();
  }

 private:
  void build(const ServerOptions& options) {
    wire::quieten_grpc();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    using Experimental = grpc::ServerBuilder::experimental_type;
    if (door_) {
      acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
          Experimental::ExternalConnectionType::FROM_FD,
          wire::server_credentials(options.security));
    } else {
      builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    }
    builder.RegisterService(&service_);
    offer_reflection(builder, options.debug_reflection);
    builder.SetMaxReceiveMessageSize(wire::kMaxReportBytes);
    for (const auto& [name, value] : wire::connection_settings()) {
      builder.AddChannelArgument(name, value);
    }
    builder.AddChannelArgument(
        GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 2000);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               static_cast<int>(kHandshakeTime.count()));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 60000);
    // A member's headers, with the longest token, have less than half of it.
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 4 << 10);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCalls);
    // gRPC parses all bytes of one read before a connection can be closed, so
    // reads are small.
    builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, 8 << 10);
    builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 64 << 10);
    grpc::ResourceQuota quota("coordinator");
    quota.Resize(size_t{256} << 20);
    // Only reflection has a thread for each open call.
    quota.SetMaxThreads(16);
    builder.SetResourceQuota(quota);
    server_.reset(builder.BuildAndStart().release());
    if (!server_) throw does_not_start();
  }

  Error does_not_start() const {
    if (!door_) {
      const std::string path =
          address_.substr(std::string_view(wire::kUnixPrefix).size());
      return Error(
          "coordinator", "cannot listen on " + address_,
          cat("name a file in a folder that exists; a path may have 107 "
              "characters, and this one has ",
              path.size()));
    }
    return Error(
        "coordinator",
        cat("gRPC's server does not start where this process may open ",
            max_descriptors(), " files"),
        "allow it more (ulimit -n), or free some memory", ExitCode::kResource);
  }

  void start_threads() {
    if (door_) {
      door_->open(
          [this](int listener, int descriptor) {
            grpc::experimental::ExternalConnectionAcceptor::
                NewConnectionParameters connection;
            connection.listener_fd = listener;
            connection.fd = descriptor;
            acceptor_->HandleNewConnection(&connection);
          },
          [this](const std::string& why) { service_.connection_refused(why); });
    }
    ticker_ = std::thread([this] {
      while (!stopping_) {
        service_.tick();
        std::this_thread::sleep_for(kTickInterval);
      }
    });
  }

  std::string address_;
  std::optional<ListenAddress> network_;  // empty for a Unix socket
  Connections connections_;
  std::unique_ptr<FrontDoor> door_;  // null on a Unix socket
  mutable CoordinatorService service_;
  wire::GrpcOwner<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::mutex stop_mutex_;
  std::atomic<bool> stopping_ = false;
  std::thread ticker_;
};

}  // namespace

std::unique_ptr<Server> Server::start(const ServerOptions& given,
                                      const Clock* clock) {
  ServerOptions options = given;
  static const SystemClock system_clock;
  if (options.expected_workers < 1) {
    throw Error(
        "coordinator",
        cat("a run has at least 1 worker, not ", options.expected_workers),
        "use --processes 1 or more");
  }
  std::unique_ptr<RunLog> log;
  if (!options.log.empty()) log = RunLog::open(options.log);
  if (options.is_successor && !(log && log->found())) {
    throw Error(kLogTag,
                options.log +
                    " holds nothing of the run that a coordinator served here "
                    "before",
                "resume the run from its newest checkpoint",
                ExitCode::kResource);
  }
  const bool has_begun = log && log->found() && go_on(options, *log->found());
  if (!options.config.resume.empty() &&
      planner::chooses_batch_norm_groups(options.config)) {
    options.config.batch_norm_rule =
        planner::saved_batch_norm_rule(options.run_directory);
  }
  const std::vector<layers::LayerCost> layers =
      planner::layers_for_plan(options.config);
  RunOptions run = run_options(options, layers);
  if (has_begun) {
    // The service reads the plan from the log.
  } else if (options.saved_plan) {
    const planner::SavedPlan saved =
        planner::read_saved_plan(options.run_directory, options.config,
                                 options.expected_workers, layers);
    if (!saved.plan) {
      throw Error("resume",
                  options.run_directory + "/" + run_files::kPlan +
                      " is no plan for this run" +
                      (saved.plan_error.empty() ? "" : ": " + saved.plan_error),
                  "give --processes, so that one is chosen");
    }
    run.plan = saved.plan;
  } else {
    planner::require_plan_on_some_device(
        options.config, options.expected_workers, layers,
        {.processes_flag = "--expected-workers"});
  }
  return std::make_unique<GrpcServer>(
      options, run, clock == nullptr ? system_clock : *clock, std::move(log));
}

}  // namespace headroom::coordinator
