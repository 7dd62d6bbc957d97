// headroom-worker: the process that drives one device. An agent starts it, and
// it does what the coordinator assigns; with --standalone it runs on its own
// (worker/run/standalone.h). It also answers a launcher's question about a data
// set (worker/tools/dataset_query.h), and carries out headroom's commands on
// data sets and weights (worker/tools/tool_command.h).
#include <ATen/Parallel.h>
#include <c10/util/Logging.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/standard_output.h"
#include "parallel/base/utf8.h"
#include "proto/channel_security.h"
#include "worker/control/agent_loss.h"
#include "worker/control/coordinator_client.h"
#include "worker/control/stop_signals.h"
#include "worker/kernels/cpu/heap.h"
#include "worker/run/generation_loop.h"
#include "worker/run/standalone.h"
#include "worker/tools/dataset_query.h"
#include "worker/tools/tool_command.h"

namespace {

struct CommandLine {
  std::string coordinator;
  std::string node_id;
  std::string worker_id;
  std::string certs;
  std::string token_file;
  bool insecure_network = false;
  int local_rank = 0;
  int threads = 1;
  headroom::run::WorkerOptions worker;
};

constexpr std::string_view kAnswer = "answer";
constexpr std::string_view kStandalone = "--standalone";

// headroom-worker answer DATA.YAML, of which `argv` has the end.
int answer_question(int argc, char** argv) {
  headroom::tools::DatasetQuery question;
  headroom::tools::WhichAnchors which;
  CLI::App app("What a launcher wants to know of a data set");
  app.add_option("data", question.data, "data.yaml")->required();
  app.add_flag("--single-cls", question.single_cls, "all classes are one");
  app.add_option("--threads", question.threads, "that read files and search");
  app.add_flag("--label-counts", question.label_counts,
               "how many boxes the images have");
  const CLI::Option* const model = app.add_option(
      "--anchors-for", which.model, "a model file: which anchors it gets");
  app.add_option("--weights", which.weights, "whose anchors are judged");
  app.add_option("--height", which.image_height, "of the network's input");
  app.add_option("--width", which.image_width, "of the network's input");
  app.add_flag("--random-crop", which.random_crop, "larger images are cut");
  app.add_option("--anchor-t", which.threshold, "hyp.anchor_t");
  app.add_option("--anchors", which.per_level, "hyp.anchors");
  app.add_flag("--keep", which.keep, "judge nothing");
  app.add_option("--seed", which.seed, "of the search");
  CLI11_PARSE(app, argc, argv);
  if (model->count() > 0) question.anchors = which;
  try {
    std::puts(headroom::tools::data_answer_json(question).c_str());
    return 0;
  } catch (const headroom::Error& error) {
    std::puts(headroom::tools::refusal_json(error).c_str());
    return static_cast<int>(error.exit_code());
  }
}

// The secret that the agent left in the environment. Processes that this one
// starts do not get it.
std::string secret_of_environment() {
  const char* const secret = std::getenv(headroom::wire::kSecretVariable);
  const std::string text = secret == nullptr ? "" : secret;
  ::unsetenv(headroom::wire::kSecretVariable);
  return text;
}

void prepare_process(int threads) {
  headroom::kernels::keep_freed_memory();
  headroom::activations::CountingAllocator::install();
  headroom::activations::install_saved_tensor_policies();
  at::set_num_threads(threads);
}

// Each peer, and each file of the data set, takes one.
void allow_many_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int run(const CommandLine& line) {
  allow_many_descriptors();
  // Launchers ask all processes of a job to end: the agent acts for its
  // workers, by a stop at a committed step.
  std::signal(SIGTERM, SIG_IGN);
  headroom::agent_loss::install();
  prepare_process(line.threads);
  const headroom::wire::ChannelSecurity security =
      headroom::wire::read_channel_security(
          line.certs, line.token_file, headroom::wire::ChannelSide::kClient);
  // The secret that peers must know travels with control traffic.
  for (const std::string& address :
       {line.coordinator, line.worker.advertise_host + ":0"}) {
    headroom::wire::require_protected(address, security, line.insecure_network);
  }
  headroom::wire::set_channel_security(security);
  const auto client = headroom::control::CoordinatorClient::connect(
      line.coordinator,
      {.node_id = line.node_id,
       .worker_id = line.worker_id,
       .secret = secret_of_environment()},
      line.worker.advertise_host);
  return headroom::run::run_generations(*client, line.worker);
}

// headroom-worker --standalone RUN.YAML, of which `argv` has the end. The
// result goes to standard output.
int run_standalone(int argc, char** argv) {
  headroom::run::StandaloneRequest request;
  CLI::App app("Runs run.yaml in this one process, without a coordinator",
               "headroom-worker --standalone");
  app.add_option("run", request.run_yaml, "RUN.YAML")->required();
  app.add_option("--plan", request.plan_json,
                 "plan.json; default: the one beside RUN.YAML, else one is "
                 "chosen");
  CLI::Option* const folder =
      app.add_option("--run-directory", request.run_directory,
                     "where the results of a new run go");
  app.add_flag("--resume", request.resume,
               "go on with the run whose folder RUN.YAML lies in")
      ->excludes(folder);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {  // --help too
    return app.exit(end) == 0 ? 0
                              : static_cast<int>(headroom::ExitCode::kRequest);
  }
  headroom::stop_signals::install();
  const headroom::run::StandaloneRun run =
      headroom::run::read_standalone(request);
  prepare_process(run.threads);
  const auto control = headroom::run::StandaloneControl::make(
      run.assignment, headroom::stop_signals::requested);
  headroom::run::run_generations(*control, {});
  const headroom::run::StandaloneEnd end = control->end();
  if (!end.result_json.empty()) std::puts(end.result_json.c_str());
  std::fprintf(stderr, "headroom-worker: %s\n", end.reason.c_str());
  return end.exit_code;
}

int drive_device(int argc, char** argv) {
  CommandLine line;
  CLI::App app("Headroom's worker process; started by 'headroom agent'");
  app.add_option("--coordinator", line.coordinator, "HOST:PORT")->required();
  app.add_option("--node-id", line.node_id, "this node's agent")->required();
  app.add_option("--worker-id", line.worker_id, "this process")->required();
  app.add_option("--local-rank", line.local_rank, "place on the node");
  app.add_option("--threads", line.threads, "compute threads");
  app.add_option("--certs", line.certs, "folder of certificates");
  app.add_option("--token-file", line.token_file, "the join token");
  app.add_flag("--insecure-network", line.insecure_network,
               "unprotected traffic beyond loopback is allowed");
  app.add_option("--advertise-host", line.worker.advertise_host,
                 "where other workers reach this one");
  CLI11_PARSE(app, argc, argv);
  return run(line);
}

// A result that nobody can read is no result.
int with_output_written(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  headroom::end_if_output_has_no_reader();
  throw headroom::Error("output", "standard output cannot be written",
                        "free some space, or choose another place",
                        headroom::ExitCode::kResource);
}

}  // namespace

int main(int argc, char** argv) {
  c10::initLogging();  // else LibTorch's log level cannot be set from outside
  headroom::log::follow_parent();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that cannot grow is an error
  const std::string_view first = argc > 1 ? argv[1] : "";
  const auto* tool = headroom::tools::find_tool_command(first);
  // A tool speaks for `headroom`, whose words were typed.
  const char* const speaker = tool ? "" : "headroom-worker: ";
  try {
    if (tool) return with_output_written(tool->run(argc - 1, argv + 1));
    if (first == kStandalone) return run_standalone(argc - 1, argv + 1);
    // A terminal's Ctrl-C is the supervisor's business; it asks through the
    // coordinator for a stop at a committed step.
    std::signal(SIGINT, SIG_IGN);
    return first == kAnswer ? answer_question(argc - 1, argv + 1)
                            : drive_device(argc, argv);
  } catch (const headroom::Error& error) {
    std::fflush(stdout);  // stands above the refusal in one log
    std::fprintf(stderr, "%s%s\n", speaker,
                 headroom::printable(error.what()).c_str());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s%s\n", speaker,
                 headroom::printable(error.what()).c_str());
    return static_cast<int>(headroom::ExitCode::kResource);
  }
}
