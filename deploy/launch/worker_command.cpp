// headroom verify and the like: the same words, said to headroom-worker, which
// takes this process's place. Exit code, output and Ctrl-C are its own then.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "deploy/launch/agent.h"
#include "deploy/launch/commands.h"
#include "parallel/base/check.h"

namespace headroom {
namespace {

// val runs a model or scores a file, never both.
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

}  // namespace

int worker_command(const CommandLine& line) {
  if (line.command == "val") check_scoring(line);
  const std::string program = find_worker_program().string();
  std::vector<std::string> words = {program, line.command};
  for (const auto& [flag, value] : line.launch_flags) {
    words.push_back(value.empty() ? flag : flag + "=" + value);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  throw Error("command line",
              program + " cannot be started (" + std::strerror(errno) + ")",
              "build headroom-worker, or free resources", ExitCode::kResource);
}

}  // namespace headroom
