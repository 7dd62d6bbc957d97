// The flags of commands that start no run: verify, tile, export, prune, detect.
// headroom-worker does them, with the same flags.
//
// Threads: a pure function.
#pragma once

#include <vector>

#include "deploy/launch/launch_flags.h"

namespace headroom {

std::vector<LaunchFlag> tool_flags();

}  // namespace headroom
