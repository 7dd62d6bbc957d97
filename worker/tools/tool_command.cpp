#include "worker/tools/tool_command.h"

#include <array>

namespace headroom::tools {

const ToolCommand* find_tool_command(std::string_view name) {
  static constexpr std::array<ToolCommand, 6> all{{{"detect", detect_command},
                                                   {"export", export_command},
                                                   {"prune", prune_command},
                                                   {"tile", tile_command},
                                                   {"val", score_command},
                                                   {"verify", verify_command}}};
  for (const ToolCommand& command : all) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

}  // namespace headroom::tools
