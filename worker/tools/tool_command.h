// Commands of headroom that headroom-worker carries out, for it has the tensors
// and reads data sets and weights: `headroom COMMAND FLAGS` becomes
// `headroom-worker COMMAND FLAGS`. Each has a file of its own, and works alone:
// no coordinator, no run.
//
// A command returns the exit code; its result goes to standard output. Errors
// are thrown, for main to print.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "configs/options.h"

namespace headroom::tools {

struct ToolCommand {
  std::string_view name;
  int (*run)(int argc, char** argv);  // argv[0] is the name
};

// A tool of this folder; nullptr if there is none of that name. Those of the
// annex are in worker/more_tools.
const ToolCommand* find_tool_command(std::string_view name);

int detect_command(int argc, char** argv);
int export_command(int argc, char** argv);
int score_command(int argc, char** argv);  // val --detections

// The variable that gets the value of an option (configs/command_options.cpp).
struct FlagBinding {
  std::string flag;  // its first spelling
  configs::Option::Member target;
};

// Parses the arguments that headroom passes on; argv[0] is the command. A flag
// that is not given has its declared default, or else leaves its target alone.
// Throws Error (exit 2) of one line for missing or wrong arguments.
void parse_arguments(const std::vector<FlagBinding>& bindings, int argc,
                     char** argv);

struct PixelSize {
  int64_t height = 0, width = 0;
};

// Reads "640" or "480 640" on a command line. Throws Error (exit 2) that shows
// how to write it.
PixelSize read_image_size(const std::string& flag, const std::string& text);

// The network's input: what --img says; without it the size that the file of
// weights was trained with, which a line on standard error says where `counts`;
// else 640.
PixelSize network_size(const std::string& image_size,
                       const std::string& weights, bool counts);

}  // namespace headroom::tools
