// The program's commands: what each is for, and examples.
#pragma once

#include <string>
#include <vector>

namespace headroom::cli {

struct CommandSummary {
  std::string name;
  std::string summary;
  bool takes_run_flags = false;  // those of configs/flags.h too
  std::vector<std::string> examples;
  bool is_workers = false;  // headroom-worker does it, with the same flags
  std::string lesson = {};  // what the help says before the flags
};

const std::vector<CommandSummary>& command_summaries();
// nullptr when there is no such command.
const CommandSummary* find_command(const std::string& name);

}  // namespace headroom::cli
