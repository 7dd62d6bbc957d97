#include <array>
#include <string>

#include "parallel/base/check.h"
#include "worker/more_tools/more_tools.h"

namespace headroom::tools {
namespace {

int refuse(int /*argc*/, char** argv) {
  throw Error("build",
              "headroom " + std::string(argv[0]) +
                  " is not part of this build, which has no annex",
              "configure with -DHEADROOM_ANNEX=ON");
}

}  // namespace

const ToolCommand* find_any_tool(std::string_view name) {
  static constexpr std::array<ToolCommand, 4> absent{{{"pack", refuse},
                                                      {"prune", refuse},
                                                      {"tile", refuse},
                                                      {"verify", refuse}}};
  for (const ToolCommand& command : absent) {
    if (command.name == name) return &command;
  }
  return find_tool_command(name);
}

}  // namespace headroom::tools
