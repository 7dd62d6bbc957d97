// The tools that no run needs: pack, prune, tile and verify. A build with
// CMake's HEADROOM_ANNEX=OFF has absent.cpp instead of the other files of this
// folder; each tool then throws Error that it is not part of the build.
#pragma once

#include <string_view>

#include "worker/tools/tool_command.h"

namespace headroom::tools {

// The tool `name` of this folder or of worker/tools; nullptr if there is none.
const ToolCommand* find_any_tool(std::string_view name);

int pack_command(int argc, char** argv);
int prune_command(int argc, char** argv);
int tile_command(int argc, char** argv);
int verify_command(int argc, char** argv);

}  // namespace headroom::tools
