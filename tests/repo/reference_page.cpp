#include "tests/repo/reference_page.h"

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

std::string row(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& text : cells) line += "| " + cell(text) + " ";
  while (line.ends_with(' ')) line.pop_back();
  return line + "\n";
}

std::string head(const std::vector<std::string>& titles) {
  return "\n" + row(titles) +
         row(std::vector<std::string>(titles.size(), "---"));
}

std::string run_flags() {
  std::string text = head({"flag", "value", "key", "only for"});
  for (const configs::Flag& flag : configs::flags()) {
    text +=
        row({listed(flag.spellings), code(flag.value_name), listed(flag.keys),
             flag.in_train && flag.in_val ? ""
             : flag.in_train              ? "train"
                                          : "val"});
  }
  return text;
}

// Flags that set no knob.
std::string other_flags() {
  std::string text = head({"flag", "value", "commands", "meaning"});
  for (const configs::CommandFlag& flag : configs::command_flags()) {
    if (flag.is_internal) continue;
    text += row({listed(flag.spellings), code(flag.value_name),
                 joined(flag.commands, ", "), flag.description});
  }
  return text;
}

// "`--threads N`", "`DATA.YAML`".
std::string with_value(const std::string& spelling,
                       const std::string& value_name) {
  const bool both = !spelling.empty() && !value_name.empty();
  return code(spelling + (both ? " " : "") + value_name);
}

template <typename Request>
std::string rows_of() {
  Request request;
  std::string text;
  for (const configs::WorkerFlag& flag : configs::flags_of(request)) {
    text += row({with_value(flag.spelling, flag.value_name), flag.description});
  }
  return text;
}

// What the processes say to each other; people say --standalone alone.
std::string process_flags() {
  std::string text = head({"flag", "meaning"});
  text += row({"`headroom-worker --standalone`", "a run by one process"}) +
          rows_of<configs::StandaloneRequest>() +
          row({"`headroom-worker`", "of an agent"}) +
          rows_of<configs::WorkerStart>() +
          row({"`headroom-worker answer`", "of a launcher"}) +
          rows_of<configs::DatasetQuery>();
  for (const configs::CommandFlag& flag : configs::command_flags()) {
    if (!flag.is_internal) continue;
    text += row({code("headroom " + flag.commands.front() + " " +
                      flag.spellings.front() +
                      (flag.value_name.empty() ? "" : " " + flag.value_name)),
                 flag.description});
  }
  return text;
}

std::string keys() {
  std::string text = head({"key", "default", "meaning"});
  for (const configs::Knob& knob : configs::knobs()) {
    std::string meaning = knob.description;
    if (!knob.choices.empty()) {
      meaning += " One of: " + joined(knob.choices, ", ") + ".";
    }
    const std::string value = configs::default_text(knob);
    text += row({"`" + knob.key + "`",
                 (value.empty() ? "" : "`" + value + "`") +
                     (knob.unit.empty() ? "" : " " + knob.unit),
                 meaning});
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
         commands() + "\n## Flags that set keys\n" + run_flags() +
         "\n## Other flags\n" + other_flags() +
         "\n## Flags of `headroom-worker` and between processes\n" +
         process_flags() + "\n## Keys of `--config` files and `--set`\n" +
         keys() + "\n## Exit codes\n" + exit_codes() + "\n## Files of a run\n" +
         files() + "\n## Events\n" + events();
}

}  // namespace headroom
