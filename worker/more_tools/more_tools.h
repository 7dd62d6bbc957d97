// The tools that a run does without: pack, prune, tile and verify. A build with
// CMake's HEADROOM_ANNEX=OFF has absent.cpp, which refuses them in one line,
// instead of the other files of this folder.
#pragma once

#include <string_view>

#include "worker/tools/tool_command.h"

namespace headroom::tools {

// A tool of this folder or of worker/tools; nullptr if there is none of that
// name.
const ToolCommand* find_any_tool(std::string_view name);

int pack_command(int argc, char** argv);
int prune_command(int argc, char** argv);
int tile_command(int argc, char** argv);
int verify_command(int argc, char** argv);

}  // namespace headroom::tools
