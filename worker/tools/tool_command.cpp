#include "worker/tools/tool_command.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <sstream>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "worker/weights/weights_file.h"

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

PixelSize read_image_size(const std::string& flag, const std::string& text) {
  constexpr int64_t kMost = 65536;
  PixelSize size;
  std::istringstream in(text);
  std::string rest;
  const bool has_height = static_cast<bool>(in >> size.height);
  if (has_height && !(in >> size.width)) {
    in.clear();
    size.width = size.height;
  }
  if (!has_height || in >> rest || size.height < 1 || size.width < 1 ||
      size.height > kMost || size.width > kMost) {
    throw Error("command line", flag + " " + text + " is no image size",
                "give pixels, for example " + flag + " 640");
  }
  return size;
}

PixelSize network_size(const std::string& image_size,
                       const std::string& weights, bool counts) {
  if (!image_size.empty()) return read_image_size("--img", image_size);
  const auto size =
      layers::trained_size(weights::read_weights_metadata(weights));
  if (!size) return {640, 640};
  if (counts) {
    std::fprintf(stderr, "%s\n",
                 layers::trained_size_note(*size, weights).c_str());
  }
  return {size->height, size->width};
}

}  // namespace headroom::tools
