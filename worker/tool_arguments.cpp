#include "worker/tool_arguments.h"

#include <CLI/CLI.hpp>

#include "parallel/base/check.h"

namespace headroom {

void parse_arguments(CLI::App& app, int argc, char** argv) {
  app.set_help_flag();  // headroom answers --help itself
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    throw Error("command line", error.what(),
                "headroom " + app.get_name() + " --help shows how to write it");
  }
}

}  // namespace headroom
