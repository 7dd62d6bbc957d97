#include "tests/repo/reference_page.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "configs/arguments.h"
#include "configs/options.h"
#include "configs/worker_start.h"
#include "deploy/cli/args/help_text.h"
#include "parallel/base/event_kinds.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"

namespace headroom {
namespace {

using configs::Option;

// The words as code, separated by commas.
std::string listed(const std::vector<std::string>& words) {
  return joined(words, ", ",
                [](const std::string& word) { return "`" + word + "`"; });
}

std::string code(const std::string& text) {
  return text.empty() ? "" : "`" + text + "`";
}

// The text of a cell, in which a bar must not end the cell.
std::string cell(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '|' ? "\\|" : std::string(1, c);
  return safe;
}

// The first cell is never empty, so a line need not begin with a bar.
std::string row(const std::vector<std::string>& cells) {
  std::string line = joined(cells, " | ", cell);
  while (line.ends_with(' ')) line.pop_back();
  return line + "\n";
}

std::string head(const std::vector<std::string>& titles) {
  return "\n" + row(titles) +
         row(std::vector<std::string>(titles.size(), "---"));
}

// Such as "`--batch`, `--batch-size N`" or "`RUN.YAML`"; with a star if val
// takes the option too.
std::string shown_form(const Option& option, bool has_star = false) {
  std::vector<std::string> words = option.names;
  if (words.empty()) words.push_back("");
  if (!option.value_name.empty()) {
    if (!words.back().empty()) words.back() += " ";
    words.back() += option.value_name;
  }
  return listed(words) + (has_star ? "\\*" : "");
}

// Such as "`16` images".
std::string shown_default(const Option& option) {
  const std::string value = configs::default_text(option);
  return code(value) + (option.unit.empty() ? "" : " " + option.unit);
}

std::string meaning_of(const Option& option) {
  const bool are_shown = option.value_name.find('|') != std::string::npos;
  if (option.choices.empty() || are_shown) return option.advice;
  return option.advice + " It is one of: " + joined(option.choices, ", ") + ".";
}

// One table per group, in the order in which the groups first appear, and one
// table of the keys that have no flag.
std::string keys() {
  std::string text = head({"flag", "meaning"});
  for (const Option& option : configs::command_options()) {
    if (!is_of_run(option)) continue;
    text += row({shown_form(option, true), option.advice});
  }
  std::vector<std::pair<std::string, std::string>> tables;
  std::string flagless = head({"key", "default", "meaning"});
  for (const Option& option : configs::run_options()) {
    if (option.names.empty()) {
      flagless +=
          row({code(option.key), shown_default(option), meaning_of(option)});
      continue;
    }
    auto table = std::ranges::find(tables, option.group,
                                   &decltype(tables)::value_type::first);
    if (table == tables.end()) {
      table = tables.insert(
          table, {option.group, head({"flag", "key", "default", "meaning"})});
    }
    const bool has_star =
        belongs_to(option, "train") && belongs_to(option, "val");
    table->second += row({shown_form(option, has_star), code(option.key),
                          shown_default(option), meaning_of(option)});
  }
  for (const auto& [group, table] : tables) {
    text += "\n### " + group + "\n" + table;
  }
  return text + "\n### Keys without a flag\n" + flagless;
}

constexpr std::array kTools = {"verify", "tile",   "pack",
                               "detect", "export", "prune"};

// Makes the tables of the flags that set no key: one table for the processes,
// and one for each tool.
std::string other_flags() {
  std::string text =
      "\n### Processes and output\n" + head({"flag", "commands", "meaning"});
  for (const Option& option : configs::command_options()) {
    if (is_of_run(option) || option.is_internal ||
        std::ranges::find(kTools, option.commands.front()) != kTools.end()) {
      continue;
    }
    text += row({shown_form(option), joined(option.commands, ", "),
                 advice_with_default(option)});
  }
  for (const std::string tool : kTools) {
    text +=
        "\n### " + code("headroom " + tool) + "\n" + head({"flag", "meaning"});
    for (const Option& option : configs::command_options()) {
      if (!belongs_to(option, tool) || option.is_internal) continue;
      text += row({shown_form(option), advice_with_default(option)});
    }
  }
  return text;
}

// The other flags of headroom-worker are internal to the processes of a run.
std::string standalone_flags() {
  configs::StandaloneRequest request;
  std::string text = head({"flag", "meaning"});
  for (const Option& option : configs::options_of(request)) {
    text += row({shown_form(option), option.advice});
  }
  return text;
}

std::string commands() {
  std::string text = head({"command", "does"});
  for (const cli::CommandSummary& command : cli::command_summaries()) {
    text += row({"`headroom " + command.name + "`", command.summary});
  }
  return text;
}

std::string exit_codes() {
  std::string text = head({"code", "meaning"});
  for (const cli::ExitCodeSummary& code : cli::exit_code_summaries()) {
    text += row({std::to_string(code.exit_code), code.meaning});
  }
  return text;
}

std::string files() {
  std::string text = head({"file", "content"});
  for (const run_files::Description& file : run_files::descriptions()) {
    text += row({listed(file.names), file.content});
  }
  return text;
}

std::string events() {
  std::string text = head({"event", "says"});
  for (const EventDescription& event : event_descriptions()) {
    text += row({std::string("`") + event.name + "`", event.says});
  }
  return text;
}

}  // namespace

std::string reference_page() {
  return "# Reference\n\nThis page is printed from the declarations in the "
         "code.\n\n## Commands\n" +
         commands() +
         "\n## Flags and keys of a run\n\nA flag sets the key beside it; so "
         "does "
         "`--set KEY=VALUE`, or the file of `--config`. `headroom train` and "
         "`plan` take these flags, and `coordinator` all but `--processes`. "
         "`headroom val` takes those with a star, and it alone "
         "those under *How to evaluate*.\n" +
         keys() + "\n## Other flags\n" + other_flags() +
         "\n### `headroom-worker --standalone`\n" + standalone_flags() +
         "\n## Exit codes\n" + exit_codes() + "\n## Files of a run\n" +
         files() + "\n## Events\n" + events();
}

}  // namespace headroom
