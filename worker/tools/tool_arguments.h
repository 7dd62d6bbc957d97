// The words of a tool command, as headroom passes them on.
//
// Errors: Error (exit 2), one line, for words that are missing or wrong.
#pragma once

#include <CLI/App.hpp>

namespace headroom::tools {

// A number from `least` to `most`; CLI::Range lets NaN through.
CLI::Validator within(double least, double most);

// `app`'s name is the command's.
void parse_arguments(CLI::App& app, int argc, char** argv);

}  // namespace headroom::tools
