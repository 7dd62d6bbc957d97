// The flags that are not knobs of a run: how the processes find each other,
// what is printed, and what tools do. The flags of a run itself
// are in configs/flags.h.
#pragma once

#include <string>
#include <vector>

namespace headroom::cli {

struct LaunchFlag {
  std::string spelling;
  std::string value_name;  // "" for a switch
  std::vector<std::string> commands;
  std::string description;  // "" for one that only headroom itself uses
  int most_values = 1;      // several are joined by spaces
};

const std::vector<LaunchFlag>& launch_flags();
bool belongs_to(const LaunchFlag& flag, const std::string& command);

// The flags of commands that start no run: verify, tile, export, prune, detect.
// headroom-worker does them, with the same flags.

std::vector<LaunchFlag> tool_flags();

}  // namespace headroom::cli
