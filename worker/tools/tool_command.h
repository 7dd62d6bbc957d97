// The commands of headroom that run in headroom-worker, because they need
// tensors, data sets or weights: `headroom COMMAND FLAGS` becomes
// `headroom-worker COMMAND FLAGS`. Each has its own file and runs alone,
// without a coordinator or a run.
//
// A command returns the exit code and writes its result to standard output. It
// throws Error, which main() prints.
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

// Returns a tool of this folder, or nullptr. worker/more_tools has the others.
const ToolCommand* find_tool_command(std::string_view name);

int detect_command(int argc, char** argv);
int export_command(int argc, char** argv);
int score_command(int argc, char** argv);  // val --detections

// The variable that receives the value of a flag of configs/command_flags.h.
struct FlagBinding {
  std::string_view flag;  // its first spelling
  std::variant<bool*, int*, int64_t*, double*, std::string*,
               std::filesystem::path*>
      target;
};

// Checks that `bindings` are the flags of the tool `command`, each once and
// with a target of the right type. Returns the mistake; "" if there is none.
std::string binding_error(const std::string& command,
                          const std::vector<FlagBinding>& bindings);

// Parses the arguments that headroom passes on; argv[0] is the command. A flag
// that is not given gets the table's default; without a default its target is
// not changed. Throws Error (exit 2) of one line for missing or wrong
// arguments.
void parse_arguments(const std::vector<FlagBinding>& bindings, int argc,
                     char** argv);

struct PixelSize {
  int64_t height = 0, width = 0;
};

// Parses "640" or "480 640". Throws Error (exit 2) that shows the correct form.
PixelSize read_image_size(const std::string& flag, const std::string& text);

// The size of the network's input: from --img, else the size with which the
// weights were trained (printed on standard error if `counts`), else 640.
PixelSize network_size(const std::string& image_size,
                       const std::string& weights, bool counts);

}  // namespace headroom::tools
