#include "worker/tools/tool_arguments.h"

#include <CLI/CLI.hpp>
#include <sstream>
#include <string>

#include "parallel/base/check.h"

namespace headroom::tools {

CLI::Validator within(double least, double most) {
  return {[least, most](std::string& text) -> std::string {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            if (is_number && value >= least && value <= most) return "";
            std::ostringstream says;
            says << text << " is not from " << least << " to " << most;
            return says.str();
          },
          "NUMBER"};
}

void parse_arguments(CLI::App& app, int argc, char** argv) {
  app.set_help_flag();  // headroom answers --help itself
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    throw Error("command line", error.what(),
                "headroom " + app.get_name() + " --help shows how to write it");
  }
}

}  // namespace headroom::tools
