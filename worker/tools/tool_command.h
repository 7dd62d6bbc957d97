// The commands of headroom that run in headroom-worker, because they need
// tensors, data sets or weights: `headroom COMMAND FLAGS` becomes
// `headroom-worker COMMAND FLAGS`. Each command has its own file and needs no
// coordinator and no run.
//
// A command returns the exit code and writes its result to standard output. It
// throws Error, which main() prints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "configs/options.h"

namespace headroom::tools {

struct ToolCommand {
  std::string_view name;
  int (*run)(int argc, char** argv);  // argv[0] is the command's name
};

// Returns the tool of this folder with that name, or nullptr. The other tools
// are in worker/more_tools.
const ToolCommand* find_tool_command(std::string_view name);

int detect_command(int argc, char** argv);
int export_command(int argc, char** argv);
int score_command(int argc, char** argv);  // val --detections

// The variable that receives the value of an option
// (configs/command_options.cpp).
struct FlagBinding {
  std::string flag;  // the option's first spelling
  configs::Option::Member target;
};

// Parses the arguments that headroom passes on; argv[0] is the command. A flag
// that is not given sets its target to the declared default; without a default
// the target is not changed. Throws Error (exit 2) of one line for missing or
// wrong arguments.
void parse_arguments(const std::vector<FlagBinding>& bindings, int argc,
                     char** argv);

struct PixelSize {
  int64_t height = 0, width = 0;
};

// Parses "640" or "480 640". Throws Error (exit 2) that shows the correct form.
PixelSize read_image_size(const std::string& flag, const std::string& text);

// The size of the network's input: from --img; without it the size with which
// the weights were trained (printed on standard error if `counts`); if that is
// unknown, 640.
PixelSize network_size(const std::string& image_size,
                       const std::string& weights, bool counts);

}  // namespace headroom::tools
