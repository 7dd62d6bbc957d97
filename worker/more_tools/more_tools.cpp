#include "worker/more_tools/more_tools.h"

#include <array>

namespace headroom::tools {

const ToolCommand* find_any_tool(std::string_view name) {
  static constexpr std::array<ToolCommand, 4> more{
      {{"pack", pack_command},
       {"prune", prune_command},
       {"tile", tile_command},
       {"verify", verify_command}}};
  for (const ToolCommand& command : more) {
    if (command.name == name) return &command;
  }
  return find_tool_command(name);
}

}  // namespace headroom::tools
