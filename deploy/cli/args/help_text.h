// The help: grouped flags with their values, units and defaults, and examples.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace headroom::cli {

// A command of the program, as configs/flags/commands.yaml describes it.
struct CommandSummary {
  std::string name;
  std::string summary = {};
  std::vector<std::string> examples = {};
  std::string lesson = {};  // lines of the help before the flags
  // The greatest number of words without a flag, such as run directories,
  // and how the usage line shows them: "RUN_DIR...".
  size_t most_operands = 0;
  std::string operands_name = {};
};

const std::vector<CommandSummary>& command_summaries();
// Returns nullptr if there is no such command.
const CommandSummary* find_command(const std::string& name);

// The exit code of a program error; headroom::ExitCode has the other exit
// codes.
inline constexpr int kInternalError = 1;

struct ExitCodeSummary {
  int exit_code = 0;
  std::string meaning;
};

const std::vector<ExitCodeSummary>& exit_code_summaries();

std::string general_help();
// REQUIRES: find_command(command) != nullptr.
std::string command_help(const std::string& command);

}  // namespace headroom::cli
