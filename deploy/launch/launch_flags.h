// The program's commands, and the flags that are not knobs of a run: how the
// processes find each other and what is printed. The flags of a run itself are
// in configs/flags.h.
//
// Threads: immutable tables.
#pragma once

#include <string>
#include <vector>

namespace headroom {

struct LaunchFlag {
  std::string spelling;
  std::string value_name;  // "" for a switch
  std::vector<std::string> commands;
  std::string description;  // "" for one that only headroom itself uses
  int most_values = 1;      // several are joined by spaces
};

const std::vector<LaunchFlag>& launch_flags();
bool belongs_to(const LaunchFlag& flag, const std::string& command);

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

}  // namespace headroom
