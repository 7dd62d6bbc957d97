// headroom-worker: the process that drives one device. An agent starts it, and
// it carries out the coordinator's assignments. With --standalone it trains
// alone (worker/run/standalone.h). Other arguments make it report facts about a
// data set to a launcher (worker/tools/dataset_query.h), run one of headroom's
// commands on data sets and weights (worker/tools/tool_command.h), or list the
// devices of the machine (worker/tools/device_query.h).
#include <ATen/Parallel.h>
#include <c10/util/Logging.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "configs/arguments.h"
#include "configs/worker_start.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/card.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/terminal.h"
#include "parallel/base/utf8.h"
#include "proto/channel_security.h"
#include "proto/refusal_channel.h"
#include "worker/control/agent_loss.h"
#include "worker/control/coordinator_client.h"
#include "worker/control/stop_signals.h"
#include "worker/kernels/cpu/crowd_watch.h"
#include "worker/kernels/cpu/heap.h"
#include "worker/more_tools/more_tools.h"
#include "worker/run/generation_loop.h"
#include "worker/run/standalone.h"
#include "worker/tools/dataset_query.h"
#include "worker/tools/device_query.h"
#include "worker/tools/tool_command.h"

namespace {

using headroom::configs::Option;

// Reads `words` into the options' variables. If `words` ask for help, prints
// the help and returns false.
bool read_words(const std::vector<Option>& options,
                const std::vector<std::string>& words,
                const std::string& program, const std::string& does) {
  if (std::ranges::count(words, "--help") + std::ranges::count(words, "-h") ==
      0) {
    headroom::configs::read_arguments(options, words, program + " --help");
    return true;
  }
  std::string text = "usage: " + program + does + "\n\n";
  for (const Option& option : options) {
    text += headroom::configs::help_entry(headroom::configs::form_of(option),
                                          option.advice);
  }
  std::fputs(text.c_str(), stdout);
  return false;
}

// Reads the secret that the agent put into the environment, and removes it
// there, so that child processes do not inherit it.
std::string secret_of_environment() {
  const char* const secret = std::getenv(headroom::wire::kSecretVariable);
  const std::string text = secret == nullptr ? "" : secret;
  ::unsetenv(headroom::wire::kSecretVariable);
  return text;
}

void prepare_process(int64_t threads, bool returns_memory = false) {
  returns_memory ? headroom::kernels::return_freed_memory()
                 : headroom::kernels::keep_freed_memory();
  headroom::activations::CountingAllocator::install();
  headroom::activations::install_saved_tensor_policies();
  at::set_num_threads(static_cast<int>(threads));
}

// Each peer and each open file of the data set needs a descriptor.
void allow_many_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// After a failure of the card, libraries would call the card again while the
// process exits, and abort. So the process ends without running the libraries'
// exit code. `exit_code` is the result of run_generations().
int end_with(int exit_code, int wanted) {
  if (exit_code != headroom::kCardExitCode) return wanted;
  std::fflush(nullptr);
  std::_Exit(wanted);
}

int run(const headroom::configs::WorkerStart& start) {
  headroom::wire::BeatChannel to_agent =
      headroom::wire::BeatChannel::from_environment();
  allow_many_descriptors();
  // Launchers send SIGTERM to all processes of a job. The agent handles it for
  // its workers, by a stop at a committed step.
  std::signal(SIGTERM, SIG_IGN);
  headroom::agent_loss::install();
  prepare_process(start.threads, start.return_memory);
  const headroom::kernels::CrowdWatch crowd(static_cast<int>(start.threads));
  const headroom::wire::ChannelSecurity security =
      headroom::wire::read_channel_security(
          start.certs, start.token_file, headroom::wire::ChannelSide::kClient);
  // The secret that peers must know is sent over the connections for control.
  // These connections must therefore be protected.
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
       .card = {static_cast<int>(start.card), start.card_uuid},
       .augment_program = start.augment_program,
       .shared = {static_cast<int>(start.shared_index),
                  static_cast<int>(start.shared_images),
                  static_cast<int>(start.sharers)}});
  return end_with(exit_code, exit_code);
}

// Runs `headroom-worker --standalone RUN.YAML`. `words` begins after
// "--standalone". The result is written to standard output.
int run_standalone(const std::vector<std::string>& words) {
  headroom::configs::StandaloneRequest request;
  if (!read_words(options_of(request), words, "headroom-worker --standalone",
                  " RUN.YAML [flags]: runs it in this one process, without a "
                  "coordinator")) {
    return 0;
  }
  if (request.resume && !request.run_directory.empty()) {
    throw headroom::Error("command line", "--resume excludes --run-directory",
                          "leave one of the two out");
  }
  headroom::stop_signals::install();
  const headroom::run::StandaloneRun run =
      headroom::run::read_standalone(request);
  prepare_process(run.threads);
  const headroom::kernels::CrowdWatch crowd(run.threads);
  const auto control = headroom::run::StandaloneControl::make(
      run.assignment, headroom::stop_signals::requested);
  const int exit_code = headroom::run::run_generations(
      *control, {.augment_program = request.augment_program});
  const headroom::run::StandaloneEnd end = control->end();
  if (!end.result_json.empty()) std::puts(end.result_json.c_str());
  std::fprintf(stderr, "headroom-worker: %s\n", end.reason.c_str());
  return end_with(exit_code, end.exit_code);
}

int drive_device(const std::vector<std::string>& words) {
  headroom::configs::WorkerStart start;
  if (!read_words(options_of(start), words, "headroom-worker",
                  " [flags]: drives one device; 'headroom agent' starts it")) {
    return 0;
  }
  return run(start);
}

// A command fails if its output could not be written.
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
  c10::initLogging();  // needed before LibTorch's log level can be set
  headroom::wire::open_refusal_channel();
  headroom::log::follow_parent();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a full disk is an error, not a signal
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string first = words.empty() ? "" : words.front();
  const std::vector<std::string> rest(words.begin() + (words.empty() ? 0 : 1),
                                      words.end());
  const auto* tool = headroom::tools::find_any_tool(first);
  // Messages of a tool have no prefix, because the user typed `headroom`.
  const char* const speaker = tool ? "" : "headroom-worker: ";
  try {
    if (tool) return with_output_written(tool->run(argc - 1, argv + 1));
    if (first == headroom::configs::kDevicesCommand) {
      std::puts(headroom::tools::devices_json().c_str());
      return with_output_written(0);
    }
    if (first == headroom::configs::kStandaloneFlag)
      return run_standalone(rest);
    // The supervisor handles a terminal's Ctrl-C: through the coordinator it
    // asks for a stop at a committed step.
    std::signal(SIGINT, SIG_IGN);
    if (first != headroom::configs::kAnswerCommand) return drive_device(words);
    std::puts(headroom::tools::data_answer_json(rest).c_str());
    return 0;
  } catch (const headroom::Error& error) {
    std::fflush(stdout);  // so that earlier output precedes the error
    headroom::wire::tell_parent({error.text(), error.tag(), error.remedy()});
    std::fprintf(stderr, "%s%s\n", speaker,
                 headroom::printable(error.what()).c_str());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s%s\n", speaker,
                 headroom::printable(error.what()).c_str());
    return static_cast<int>(headroom::ExitCode::kResource);
  }
}
