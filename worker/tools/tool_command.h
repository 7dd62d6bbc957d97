// Commands of headroom that headroom-worker carries out, for it has the tensors
// and reads data sets and weights: `headroom COMMAND FLAGS` becomes
// `headroom-worker COMMAND FLAGS`. Each has a file of its own, and works alone:
// no coordinator, no run.
//
// A command returns the exit code; its result goes to standard output. Errors
// are thrown, for main to print.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

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

// The variable that gets the value of a flag of configs/command_flags.h.
struct FlagBinding {
  std::string_view flag;  // its first spelling
  std::variant<bool*, int*, int64_t*, double*, std::string*,
               std::filesystem::path*>
      target;
};

// Why `bindings` are not the flags of the tool `command`, each once and with a
// target of its kind; "" when they are.
std::string binding_error(const std::string& command,
                          const std::vector<FlagBinding>& bindings);

// Parses the arguments that headroom passes on; argv[0] is the command. A flag
// that is not given has the table's default, or else leaves its target alone.
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
