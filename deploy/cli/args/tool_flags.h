// The flags of commands that start no run: verify, tile, export, prune, detect.
// headroom-worker does them, with the same flags.
#pragma once

#include <vector>

#include "deploy/cli/args/launch_flags.h"

namespace headroom::cli {

std::vector<LaunchFlag> tool_flags();

}  // namespace headroom::cli
