// headroom-worker: the process that drives one device. Started by an agent,
// never by hand; it does what the coordinator assigns.
#include <ATen/Parallel.h>
#include <c10/util/Logging.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"
#include "worker/coordinator_client.h"
#include "worker/generation_loop.h"
#include "worker/model/kernels/heap.h"

namespace {

struct CommandLine {
  std::string coordinator;
  std::string node_id;
  std::string worker_id;
  int local_rank = 0;
  int threads = 1;
  headroom::WorkerOptions worker;
};

int run(const CommandLine& line) {
  headroom::keep_freed_memory();
  headroom::CountingAllocator::install();
  headroom::install_saved_tensor_policies();
  at::set_num_threads(line.threads);
  const auto client = headroom::CoordinatorClient::connect(
      line.coordinator, line.node_id, line.worker_id,
      line.worker.advertise_host);
  return headroom::run_generations(*client, line.worker);
}

}  // namespace

int main(int argc, char** argv) {
  c10::initLogging();  // else LibTorch's log level cannot be set from outside
  // A terminal's Ctrl-C is the supervisor's business; it asks through the
  // coordinator for a stop at a committed step.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);

  CommandLine line;
  CLI::App app("Headroom's worker process; started by 'headroom agent'");
  app.add_option("--coordinator", line.coordinator, "HOST:PORT")->required();
  app.add_option("--node-id", line.node_id, "this node's agent")->required();
  app.add_option("--worker-id", line.worker_id, "this process")->required();
  app.add_option("--local-rank", line.local_rank, "place on the node");
  app.add_option("--threads", line.threads, "compute threads");
  app.add_option("--advertise-host", line.worker.advertise_host,
                 "where other workers reach this one");
  CLI11_PARSE(app, argc, argv);

  try {
    return run(line);
  } catch (const headroom::Error& error) {
    std::fprintf(stderr, "headroom-worker: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headroom-worker: %s\n", error.what());
    return static_cast<int>(headroom::ExitCode::kResource);
  }
}
