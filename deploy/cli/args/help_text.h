// The help: grouped flags with their values, units and defaults, and examples.
#pragma once

#include <string>

namespace headroom::cli {

std::string general_help();
// REQUIRES: find_command(command) != nullptr.
std::string command_help(const std::string& command);

}  // namespace headroom::cli
