// headroom verify and other commands that need tensors: headroom-worker
// replaces this process, with the same arguments.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "configs/options.h"
#include "configs/published_weights.h"
#include "deploy/cli/args/run_name.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/process/agent.h"
#include "parallel/base/check.h"
#include "parallel/base/environment.h"

namespace headroom::cli {
namespace {

// val either runs a model or scores a file, never both.
void check_scoring(const CommandLine& line) {
  for (const char* flag : {"--detections", "--ground-truth"}) {
    if (line.has(flag)) continue;
    throw Error("command line", std::string(flag) + " is missing",
                "headroom val --detections FILE --ground-truth FILE scores a "
                "result file");
  }
  if (line.run_flags.empty()) return;
  throw Error("command line",
              line.run_flags.front().spelling +
                  " means nothing where a file of detections is scored",
              "leave it out, or leave --detections and --ground-truth out");
}

bool names_results(const std::string& flag) {
  return flag == "--project" || flag == "--name";
}

// The worker appends a number to the folder's name when it writes results.
std::string results_folder(const CommandLine& line) {
  configs::RunConfig naming;
  naming.command = line.command;
  naming.project = line.value_of("--project");
  naming.name = line.value_of("--name");
  return (project_folder(naming) / naming.name).string();
}

}  // namespace

void become_worker(std::vector<std::string> words) {
  const std::string program = find_worker_program().string();
  words.insert(words.begin(), program);
  ::execv(program.c_str(), pointers_to(words).data());
  throw Error("command line",
              program + " cannot be started (" + std::strerror(errno) + ")",
              "build headroom-worker, or free resources", ExitCode::kResource);
}

void worker_command(const CommandLine& line) {
  if (line.command == "val") check_scoring(line);
  std::vector<std::string> words = {line.command};
  std::vector<std::string> notes = line.notes;
  if (line.command == "detect") {
    words.push_back("--output=" + results_folder(line));
  }
  for (const auto& [flag, value] : line.command_flags) {
    if (names_results(flag)) {
      if (line.value_of("--source") != "-") continue;
      throw Error(
          "detect",
          flag + " means nothing with --source -, which writes no files",
          "leave it out");
    }
    const configs::Option& declared = *configs::find_option(line.command, flag);
    if (value.empty() && declared.may_be_empty) continue;
    if (value.empty() && !is_switch(declared)) {
      throw Error("command line", flag + " has an empty value",
                  "give one, or leave " + flag + " out");
    }
    words.push_back(value.empty() ? flag
                    : flag == "--weights"
                        ? flag + "=" + configs::find_weights(value, notes)
                        : flag + "=" + value);
  }
  for (const std::string& note : notes) {
    std::fprintf(stderr, "%s\n", note.c_str());
  }
  become_worker(std::move(words));
}

}  // namespace headroom::cli
