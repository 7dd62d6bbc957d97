#include "worker/tools/tool_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <iomanip>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

#include "configs/command_flags.h"
#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/weights/weights_file.h"

namespace headroom::tools {
namespace {

// A number without CLI11's spaces: "1", "0.001", "65536".
std::string bound_text(double bound) {
  std::ostringstream text;
  text << std::setprecision(10) << bound;
  return text.str();
}

// Refuses all but numbers from `low` to `high`; CLI::Range accepts NaN.
template <typename Value>
CLI::Validator within(const configs::CommandFlag& flag,
                      const std::string& spelling) {
  return {
      [flag, spelling](std::string& text) -> std::string {
        Value value{};
        if (CLI::detail::lexical_cast(text, value) &&
            static_cast<double>(value) >= flag.low &&
            static_cast<double>(value) <= flag.high) {
          return "";
        }
        double percent = 0;
        const bool is_percent =
            text.ends_with('%') && flag.high <= 1 &&
            CLI::detail::lexical_cast(text.substr(0, text.size() - 1), percent);
        const std::string shown = is_percent ? bound_text(percent / 100)
                                  : flag.default_value.empty()
                                      ? bound_text(flag.low)
                                      : flag.default_value;
        throw Error(
            "command line",
            spelling + " " + text + ": " + text + " is not " +
                (std::is_integral_v<Value> ? "a whole number " : "") + "from " +
                bound_text(flag.low) + " to " + bound_text(flag.high),
            (is_percent ? "write " : "for example ") + spelling + " " + shown);
      },
      "NUMBER"};
}

// Refuses anything but one of the flag's choices.
CLI::Validator one_of(const configs::CommandFlag& flag,
                      const std::string& spelling) {
  return {[flag, spelling](std::string& text) -> std::string {
            if (std::ranges::count(flag.choices, text) > 0) return "";
            throw Error("command line", spelling + " " + text + " is not known",
                        "give " + either_of(flag.choices));
          },
          "CHOICE"};
}

auto find_flag(const std::vector<configs::CommandFlag>& flags,
               std::string_view spelling) {
  return std::ranges::find_if(flags, [&](const configs::CommandFlag& flag) {
    return flag.spellings.front() == spelling;
  });
}

// The spelling that was used; arguments have the form --batch-size=8.
std::string typed_spelling(const configs::CommandFlag& flag, int argc,
                           char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const std::string spelling(word.substr(0, word.find('=')));
    if (std::ranges::count(flag.spellings, spelling) > 0) return spelling;
  }
  return flag.spellings.front();
}

void add_flag(CLI::App& app, const configs::CommandFlag& flag,
              const std::string& /*spelling*/, bool* target) {
  app.add_flag(flag.spellings.front(), *target);
}

template <typename Value>
void add_flag(CLI::App& app, const configs::CommandFlag& flag,
              const std::string& spelling, Value* target) {
  CLI::Option* const option =
      app.add_option(CLI::detail::join(flag.spellings), *target);
  option->required(flag.is_required);
  if (!flag.default_value.empty()) {
    HEADROOM_CHECK(CLI::detail::lexical_cast(flag.default_value, *target),
                   flag.spellings.front() + " " + flag.default_value);
  }
  if (!flag.choices.empty()) option->check(one_of(flag, spelling));
  if (flag.high == flag.kUnbounded) return;
  if constexpr (std::is_arithmetic_v<Value>) {
    option->check(within<Value>(flag, spelling));
  }
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

std::string binding_error(const std::string& command,
                          const std::vector<FlagBinding>& bindings) {
  std::set<std::string_view> bound;
  const std::vector<configs::CommandFlag> flags = configs::tool_flags(command);
  for (const FlagBinding& binding : bindings) {
    const std::string what = command + " " + std::string(binding.flag);
    const auto flag = find_flag(flags, binding.flag);
    if (flag == flags.end()) return what + " is not in the table";
    if (!bound.insert(binding.flag).second) return what + " is bound twice";
    const bool is_switch = std::holds_alternative<bool*>(binding.target);
    if (is_switch != flag->value_name.empty()) {
      return what + (is_switch ? " has a value" : " has no value");
    }
  }
  for (const configs::CommandFlag& flag : flags) {
    if (!bound.contains(flag.spellings.front())) {
      return command + " " + flag.spellings.front() + " is not bound";
    }
  }
  return "";
}

void parse_arguments(const std::vector<FlagBinding>& bindings, int argc,
                     char** argv) {
  const std::string command = argv[0];
  const std::string mistake = binding_error(command, bindings);
  HEADROOM_CHECK(mistake.empty(), mistake);
  CLI::App app("", command);
  app.set_help_flag();  // headroom itself answers --help
  const std::vector<configs::CommandFlag> flags = configs::tool_flags(command);
  for (const FlagBinding& binding : bindings) {
    const configs::CommandFlag& flag = *find_flag(flags, binding.flag);
    const std::string spelling = typed_spelling(flag, argc, argv);
    std::visit([&](auto* target) { add_flag(app, flag, spelling, target); },
               binding.target);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    throw Error("command line", error.what(),
                "headroom " + command + " --help shows how to write it");
  }
  for (const FlagBinding& binding : bindings) {
    const configs::CommandFlag& flag = *find_flag(flags, binding.flag);
    auto* const* const text = std::get_if<std::string*>(&binding.target);
    if (flag.value_name != configs::kPixelSize || (**text).empty()) continue;
    read_image_size(typed_spelling(flag, argc, argv), **text);
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
