// headroom-worker: the process that drives one device. An agent starts it, and
// it does what the coordinator assigns; with --standalone it runs on its own
// (worker/run/standalone.h). It also answers a launcher's question about a data
// set (worker/tools/dataset_query.h), and carries out headroom's commands on
// data sets and weights (worker/tools/tool_command.h), and says which devices
// there are (worker/tools/device_query.h).
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
#include <variant>
#include <vector>

#include "configs/worker_flags.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/card.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/terminal_style.h"
#include "parallel/base/utf8.h"
#include "proto/channel_security.h"
#include "worker/control/agent_loss.h"
#include "worker/control/coordinator_client.h"
#include "worker/control/stop_signals.h"
#include "worker/kernels/cpu/heap.h"
#include "worker/run/generation_loop.h"
#include "worker/run/standalone.h"
#include "worker/tools/dataset_query.h"
#include "worker/tools/device_query.h"
#include "worker/tools/tool_command.h"

namespace {

using headroom::configs::WorkerFlag;

CLI::Option* add(CLI::App& app, const std::string& name, bool* switched_on,
                 const std::string& description) {
  return app.add_flag(name, *switched_on, description);
}

template <typename Value>
CLI::Option* add(CLI::App& app, const std::string& name, Value* value,
                 const std::string& description) {
  return app.add_option(name, *value, description);
}

// Lets `app` set what the flags are bound to.
void add_flags(CLI::App& app, const std::vector<WorkerFlag>& flags) {
  for (const WorkerFlag& flag : flags) {
    const std::string& name =
        flag.spelling.empty() ? flag.value_name : flag.spelling;
    CLI::Option* const option = std::visit(
        [&](auto* value) { return add(app, name, value, flag.description); },
        flag.value);
    option->required(flag.is_required);
    if (!flag.excludes.empty()) option->excludes(app.get_option(flag.excludes));
  }
}

// headroom-worker answer DATA.YAML, of which `argv` has the end.
int answer_question(int argc, char** argv) {
  headroom::configs::DatasetQuery question;
  CLI::App app("What a launcher wants to know of a data set");
  add_flags(app, flags_of(question));
  CLI11_PARSE(app, argc, argv);
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

void prepare_process(int64_t threads) {
  headroom::kernels::keep_freed_memory();
  headroom::activations::CountingAllocator::install();
  headroom::activations::install_saved_tensor_policies();
  at::set_num_threads(static_cast<int>(threads));
}

// Each peer, and each file of the data set, takes one.
void allow_many_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Where the card failed libraries would call it once more at the process's end,
// and abort: the process ends without them. `exit_code`: the generations'.
int end_with(int exit_code, int wanted) {
  if (exit_code != headroom::kCardExitCode) return wanted;
  std::fflush(nullptr);
  std::_Exit(wanted);
}

int run(const headroom::configs::WorkerStart& start) {
  headroom::wire::BeatChannel to_agent =
      headroom::wire::BeatChannel::from_environment();
  allow_many_descriptors();
  // Launchers ask all processes of a job to end: the agent acts for its
  // workers, by a stop at a committed step.
  std::signal(SIGTERM, SIG_IGN);
  headroom::agent_loss::install();
  prepare_process(start.threads);
  const headroom::wire::ChannelSecurity security =
      headroom::wire::read_channel_security(
          start.certs, start.token_file, headroom::wire::ChannelSide::kClient);
  // The secret that peers must know travels with control traffic.
  for (const std::string& address :
       {start.coordinator, start.advertise_host + ":0"}) {
    headroom::wire::require_protected(address, security,
                                      start.insecure_network);
  }
  headroom::wire::set_channel_security(security);
  const auto client = headroom::control::CoordinatorClient::connect(
      start.coordinator,
      {.node_id = start.node_id,
       .worker_id = start.worker_id,
       .secret = secret_of_environment()},
      start.advertise_host, headroom::control::kPatience, std::move(to_agent));
  const int exit_code = headroom::run::run_generations(
      *client,
      {.advertise_host = start.advertise_host,
       .socket_folder = headroom::wire::unix_folder_of(start.coordinator),
       .card = {static_cast<int>(start.card), start.card_uuid}});
  return end_with(exit_code, exit_code);
}

// headroom-worker --standalone RUN.YAML, of which `argv` has the end. The
// result goes to standard output.
int run_standalone(int argc, char** argv) {
  headroom::configs::StandaloneRequest request;
  CLI::App app("Runs run.yaml in this one process, without a coordinator",
               "headroom-worker --standalone");
  add_flags(app, flags_of(request));
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
  const int exit_code = headroom::run::run_generations(*control, {});
  const headroom::run::StandaloneEnd end = control->end();
  if (!end.result_json.empty()) std::puts(end.result_json.c_str());
  std::fprintf(stderr, "headroom-worker: %s\n", end.reason.c_str());
  return end_with(exit_code, end.exit_code);
}

int drive_device(int argc, char** argv) {
  headroom::configs::WorkerStart start;
  CLI::App app("Headroom's worker process; started by 'headroom agent'");
  add_flags(app, flags_of(start));
  CLI11_PARSE(app, argc, argv);
  return run(start);
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
  headroom::wire::keep_openssl_to_the_end();
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
    if (first == headroom::configs::kDevicesCommand) {
      std::puts(headroom::tools::devices_json().c_str());
      return with_output_written(0);
    }
    if (first == headroom::configs::kStandaloneFlag)
      return run_standalone(argc - 1, argv + 1);
    // A terminal's Ctrl-C is the supervisor's business; it asks through the
    // coordinator for a stop at a committed step.
    std::signal(SIGINT, SIG_IGN);
    return first == headroom::configs::kAnswerCommand
               ? answer_question(argc - 1, argv + 1)
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
