// Commands of headroom that headroom-worker carries out, for it has the tensors
// and reads data sets and weights: `headroom COMMAND FLAGS` becomes
// `headroom-worker COMMAND FLAGS`. Each has a file of its own, and works alone:
// no coordinator, no run.
//
// A command returns the exit code; its result goes to standard output. Errors
// are thrown, for main to print.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
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

// A validator for a number from `least` to `most`; CLI::Range lets NaN through.
CLI::Validator within(double least, double most);

// Parses the arguments that headroom passes on; the name of `app` is the
// command's. Throws Error (exit 2) of one line for missing or wrong arguments.
void parse_arguments(CLI::App& app, int argc, char** argv);

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
