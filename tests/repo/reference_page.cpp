#include "tests/repo/reference_page.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "configs/command_flags.h"
#include "configs/flags.h"
#include "configs/knobs.h"
#include "configs/worker_flags.h"
#include "deploy/cli/args/help_text.h"
#include "parallel/base/event_kinds.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"

namespace headroom {
namespace {

// Each as code, with commas between them.
std::string listed(const std::vector<std::string>& words) {
  return joined(words, ", ",
                [](const std::string& word) { return "`" + word + "`"; });
}

std::string code(const std::string& text) {
  return text.empty() ? "" : "`" + text + "`";
}

// A cell must not end its table.
std::string cell(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '|' ? "\\|" : std::string(1, c);
  return safe;
}

// No cell in front is empty, so no line needs to begin with a bar.
std::string row(const std::vector<std::string>& cells) {
  std::string line = joined(cells, " | ", cell);
  while (line.ends_with(' ')) line.pop_back();
  return line + "\n";
}

std::string head(const std::vector<std::string>& titles) {
  return "\n" + row(titles) +
         row(std::vector<std::string>(titles.size(), "---"));
}

// "`--batch`, `--batch-size N`".
std::string shown_flag(std::vector<std::string> spellings,
                       const std::string& value_name) {
  if (!value_name.empty()) spellings.back() += " " + value_name;
  return listed(spellings);
}

// "`16` images".
std::string shown_default(const configs::Knob& knob) {
  const std::string value = configs::default_text(knob);
  return code(value) + (knob.unit.empty() ? "" : " " + knob.unit);
}

std::string meaning_of(const configs::Knob& knob) {
  const bool are_shown = knob.flag.value_name.find('|') != std::string::npos;
  if (knob.choices.empty() || are_shown) return knob.description;
  return knob.description + " It is one of: " + joined(knob.choices, ", ") +
         ".";
}

std::string flag_row(const configs::Knob& knob) {
  using Commands = configs::KnobFlag::Commands;
  const bool has_star = knob.flag.commands == Commands::kTrainAndVal;
  return row({shown_flag(knob.flag.spellings, knob.flag.value_name) +
                  (has_star ? "\\*" : ""),
              code(knob.key), shown_default(knob), meaning_of(knob)});
}

// One table a group, in the order in which the groups first appear, and one of
// the keys that have no flag.
std::string keys() {
  std::string text = head({"flag", "meaning"});
  for (const configs::Flag& flag : configs::flags()) {
    if (!flag.keys.empty()) continue;
    text += row({shown_flag(flag.spellings, flag.value_name) + "\\*",
                 flag.description});
  }
  std::vector<std::pair<std::string, std::string>> tables;
  std::string flagless = head({"key", "default", "meaning"});
  for (const configs::Knob& knob : configs::knobs()) {
    if (knob.flag.spellings.empty()) {
      flagless += row({code(knob.key), shown_default(knob), meaning_of(knob)});
      continue;
    }
    auto table = std::ranges::find(tables, knob.group,
                                   &decltype(tables)::value_type::first);
    if (table == tables.end()) {
      table = tables.insert(
          table, {knob.group, head({"flag", "key", "default", "meaning"})});
    }
    table->second += flag_row(knob);
  }
  for (const auto& [group, table] : tables) {
    text += "\n### " + group + "\n" + table;
  }
  return text + "\n### Keys without a flag\n" + flagless;
}

constexpr std::array kTools = {"verify", "tile",   "pack",
                               "detect", "export", "prune"};

// Flags that set no key: of the processes in one table, of each tool in its
// own.
std::string other_flags() {
  std::string text =
      "\n### Processes and output\n" + head({"flag", "commands", "meaning"});
  for (const configs::CommandFlag& flag : configs::command_flags()) {
    if (flag.is_internal ||
        std::ranges::find(kTools, flag.commands.front()) != kTools.end()) {
      continue;
    }
    text += row({shown_flag(flag.spellings, flag.value_name),
                 joined(flag.commands, ", "), flag.description});
  }
  for (const std::string tool : kTools) {
    text +=
        "\n### " + code("headroom " + tool) + "\n" + head({"flag", "meaning"});
    for (const configs::CommandFlag& flag : configs::command_flags()) {
      if (!configs::belongs_to(flag, tool)) continue;
      text +=
          row({shown_flag(flag.spellings, flag.value_name), flag.description});
    }
  }
  return text;
}

// "`--threads N`", "`DATA.YAML`".
std::string with_value(const std::string& spelling,
                       const std::string& value_name) {
  const bool both = !spelling.empty() && !value_name.empty();
  return code(spelling + (both ? " " : "") + value_name);
}

// The other flags of headroom-worker are internal to the processes of a run.
std::string standalone_flags() {
  configs::StandaloneRequest request;
  std::string text = head({"flag", "meaning"});
  for (const configs::WorkerFlag& flag : configs::flags_of(request)) {
    text += row({with_value(flag.spelling, flag.value_name), flag.description});
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
         "`plan` take these flags, and `coordinator` all but `--processes` and "
         "`--resume`. `headroom val` takes those with a star, and it alone "
         "those under *How to evaluate*.\n" +
         keys() + "\n## Other flags\n" + other_flags() +
         "\n### `headroom-worker --standalone`\n" + standalone_flags() +
         "\n## Exit codes\n" + exit_codes() + "\n## Files of a run\n" +
         files() + "\n## Events\n" + events();
}

}  // namespace headroom
