// Commands of headroom that headroom-worker carries out, for it has the tensors
// and reads data sets and weights: `headroom COMMAND FLAGS` becomes
// `headroom-worker COMMAND FLAGS`. Each has a file of its own, and works alone:
// no coordinator, no run.
//
// A command returns the exit code; its result goes to standard output. Errors
// are thrown, for main to print.
#pragma once

#include <string_view>

namespace headroom::tools {

struct ToolCommand {
  std::string_view name;
  int (*run)(int argc, char** argv);  // argv[0] is the name
};

// nullptr if there is no such command.
const ToolCommand* find_tool_command(std::string_view name);

int detect_command(int argc, char** argv);
int export_command(int argc, char** argv);
int prune_command(int argc, char** argv);
int score_command(int argc, char** argv);  // val --detections
int tile_command(int argc, char** argv);
int verify_command(int argc, char** argv);

}  // namespace headroom::tools
