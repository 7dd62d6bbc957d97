#include "worker/tools/tool_command.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>

#include "configs/arguments.h"
#include "configs/layers/model_table.h"
#include "configs/options.h"
#include "parallel/base/check.h"
#include "worker/weights/weights_file.h"

namespace headroom::tools {
namespace {

// The spelling of the option that the user typed.
std::string typed_spelling(const configs::Option& option,
                           const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const std::string spelling = configs::spelling_of(word);
    if (std::ranges::count(option.names, spelling) > 0) return spelling;
  }
  return option.names.front();
}

}  // namespace

const ToolCommand* find_tool_command(std::string_view name) {
  static constexpr std::array<ToolCommand, 3> all{{{"detect", detect_command},
                                                   {"export", export_command},
                                                   {"val", score_command}}};
  for (const ToolCommand& command : all) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

void parse_arguments(const std::vector<FlagBinding>& bindings, int argc,
                     char** argv) {
  const std::string command = argv[0];
  const std::vector<std::string> words(argv + 1, argv + argc);
  std::vector<configs::Option> options;
  for (const FlagBinding& binding : bindings) {
    const configs::Option* const declared =
        configs::find_option(command, binding.flag);
    HEADROOM_CHECK(declared != nullptr &&
                       is_switch(*declared) ==
                           std::holds_alternative<bool*>(binding.target),
                   command + " " + binding.flag);
    options.push_back(*declared);
    options.back().member = binding.target;
  }
  configs::read_arguments(options, words, "headroom " + command + " --help");
  for (const configs::Option& option : options) {
    if (option.value_name != configs::kPixelSize) continue;
    const std::string text = value_text({}, option);
    if (!text.empty()) read_image_size(typed_spelling(option, words), text);
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
