// headroom: the command line. main() turns an Error into a printed line and an
// exit code.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "deploy/cli/args/command_line.h"
#include "deploy/cli/args/help_text.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/launcher_end.h"
#include "deploy/cli/process/launcher_environment.h"
#include "deploy/cli/show/run_result.h"
#include "parallel/base/check.h"
#include "parallel/base/environment.h"
#include "parallel/base/log.h"
#include "parallel/base/terminal.h"
#include "parallel/base/utf8.h"
#include "proto/channel_security.h"
#include "proto/refusal_channel.h"
#include "proto/version.h"

namespace {

int run(const headroom::cli::CommandLine& line) {
  using namespace headroom::cli;
  if (line.version) {
    std::printf("headroom %s\n", headroom::wire::kVersion);
    return 0;
  }
  if (line.help) {
    std::fputs(
        (line.command.empty() ? general_help() : command_help(line.command))
            .c_str(),
        stdout);
    return 0;
  }
  if (line.command == "coordinator") return coordinator_command(line);
  if (line.command == "agent") return agent_command(line);
  if (line.command == "status") return status_command(line);
  if (line.command == "page") return page_command(line);
  if (line.command == "report") return report_command(line);
  if (line.command == "fetch") return fetch_command(line);
  if (line.command == "plan") return plan_command(line);
  const bool is_run = line.command == "train" || line.command == "val";
  if (is_run && !line.has("--detections") && !line.has("--ground-truth")) {
    return train_command(line);
  }
  worker_command(line);
}

// Whether a launcher may start this command in each of its processes.
bool is_launched(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words.front();
  return command == "train" || command == "val" ||
         (command == "agent" &&
          std::ranges::find(words, "--supervised") == words.end());
}

// Passes the exit code to the other processes that share the agent of this
// process.
struct LauncherEnd {
  std::optional<headroom::cli::LauncherJob> job;
  std::optional<headroom::cli::LocalVerdict> verdict;

  void tell(int exit_code) {
    if (verdict) verdict->tell(exit_code, std::chrono::seconds(5));
  }
};

int parse_and_run(const std::vector<std::string>& words, LauncherEnd& end) {
  using namespace headroom::cli;
  if (!words.empty() && words.front() == "notify") return notify_command(words);
  if (!words.empty() && words.front() == "worker") {
    become_worker({words.begin() + 1, words.end()});
  }
  if (is_launched(words))
    end.job = read_launcher(headroom::process_environment());
  if (end.job && end.job->local_worker > 0) {
    return wait_for_verdict(*end.job, std::chrono::seconds(60));
  }
  if (end.job && end.job->local_workers > 1) end.verdict.emplace(*end.job);
  CommandLine line;
  try {
    line = parse_command_line(words);
  } catch (const headroom::Error& error) {
    // Under a launcher every process has the same arguments, so all find the
    // same mistake: only rank 0 prints it.
    const auto job =
        end.job ? end.job : read_launcher(headroom::process_environment());
    if (!job || job->place.rank == 0) throw;
    wait_for_rank_zero(job->place, std::chrono::seconds(1));
    return static_cast<int>(error.exit_code());
  }
  return run(line);
}

// Opens closed standard streams, so that no pipe gets their numbers.
void open_standard_streams() {
  int descriptor = ::open("/dev/null", O_RDWR);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) {
    descriptor = ::open("/dev/null", O_RDWR);
  }
  if (descriptor >= 0) ::close(descriptor);
}

// Returns `exit_code`, or a failure if standard output could not be written.
int with_output_written(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  const std::string why = std::strerror(errno);
  headroom::end_if_output_has_no_reader();
  std::fprintf(stderr,
               "[headroom] the result could not be written to standard output "
               "(%s): free some space, or send it elsewhere\n",
               why.c_str());
  return exit_code != 0 ? exit_code
                        : static_cast<int>(headroom::ExitCode::kResource);
}

// The message if the system refuses threads, processes, descriptors or memory.
headroom::wire::Refusal out_of_resources(const std::string& why) {
  return {.text = "the system refuses what the program needs (" + why + ")",
          .tag = "headroom",
          .remedy = "raise its limits (ulimit -a), or free memory"};
}

// Runs the command; an exception is printed as one line and becomes an exit
// code.
int exit_code_of(const std::vector<std::string>& words, LauncherEnd& launcher) {
  using headroom::cli::as_typed;
  headroom::wire::Refusal refusal;
  int exit_code = static_cast<int>(headroom::ExitCode::kResource);
  try {
    return with_output_written(parse_and_run(words, launcher));
  } catch (const headroom::Error& error) {
    exit_code = static_cast<int>(error.exit_code());
    refusal = {.text = as_typed(error.text(), words),
               .tag = error.tag(),
               .remedy = as_typed(error.remedy(), words)};
  } catch (const std::bad_alloc&) {
    refusal = out_of_resources("out of memory");
  } catch (const std::system_error& error) {
    refusal = out_of_resources(error.what());
  } catch (const std::exception& error) {
    exit_code = headroom::cli::kInternalError;
    refusal.text = std::string("[headroom] internal error: ") + error.what();
  }
  const headroom::cli::RunExit end = {exit_code, refusal.line()};
  // In a log that receives both streams, the output must come before the error.
  std::fflush(stdout);
  headroom::wire::tell_parent(refusal);
  std::fprintf(stderr, "%s\n", headroom::printable(end.reason).c_str());
  if (launcher.job) headroom::cli::leave_failure(*launcher.job, end.reason);
  if (std::find(words.begin(), words.end(), "--json") != words.end()) {
    std::puts(headroom::cli::result_json(end, "", "").c_str());
  }
  return with_output_written(end.exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  headroom::wire::keep_openssl_to_the_end();
  const std::vector<std::string> words(argv + 1, argv + argc);
  headroom::wire::open_refusal_channel();
  headroom::log::follow_parent();
  headroom::interrupts::install();
  LauncherEnd launcher;
  const int exit_code = exit_code_of(words, launcher);
  launcher.tell(exit_code);
  return exit_code;
}
