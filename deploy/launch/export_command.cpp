// headroom export: the worker's business, for it has LibTorch. This process
// becomes it, so that Ctrl-C, output and exit code are its own.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "deploy/launch/agent.h"
#include "deploy/launch/commands.h"
#include "parallel/base/check.h"

namespace headroom {

int export_command(const CommandLine& line) {
  std::vector<std::string> words = {find_worker_program().string(), "export"};
  for (const auto& [spelling, value] : line.launch_flags) {
    words.push_back(value.empty() ? spelling : spelling + "=" + value);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  const std::string why = std::strerror(errno);
  throw Error("export", words[0] + " cannot be started (" + why + ")",
              "build headroom and headroom-worker together",
              ExitCode::kResource);
}

}  // namespace headroom
