// headroom: the command line. Here Errors become lines and exit codes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "deploy/launch/commands.h"
#include "deploy/launch/help_text.h"
#include "deploy/launch/interrupts.h"
#include "deploy/launch/run_result.h"
#include "parallel/base/check.h"
#include "proto/version.h"

namespace {

int run(const std::vector<std::string>& words) {
  using namespace headroom;
  const CommandLine line = parse_command_line(words);
  if (line.version) {
    std::printf("headroom %s\n", kVersion);
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
  return train_command(line);
}

// Without standard streams our pipes would take their numbers.
void open_standard_streams() {
  int descriptor = ::open("/dev/null", O_RDWR);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) {
    descriptor = ::open("/dev/null", O_RDWR);
  }
  if (descriptor >= 0) ::close(descriptor);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  const std::vector<std::string> words(argv + 1, argv + argc);
  headroom::interrupts::install();
  headroom::RunEnd end;
  try {
    return run(words);
  } catch (const headroom::Error& error) {
    end = {static_cast<int>(error.exit_code()), error.what()};
  } catch (const std::exception& error) {
    end = {1, std::string("[headroom] internal error: ") + error.what()};
  }
  std::fprintf(stderr, "%s\n", end.reason.c_str());
  if (std::find(words.begin(), words.end(), "--json") != words.end()) {
    std::puts(headroom::result_json(end, "", "").c_str());
  }
  return end.exit_code;
}
