#include "deploy/cli/args/help_text.h"

#include <map>
#include <sstream>

#include "configs/flags.h"
#include "configs/knobs.h"
#include "deploy/cli/args/command_line.h"
#include "deploy/cli/args/command_summaries.h"
#include "deploy/cli/args/launch_flags.h"
#include "proto/version.h"

namespace headroom::cli {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kIndent = 6;

std::string wrapped(const std::string& text) {
  std::istringstream words(text);
  std::string word, line(kIndent, ' '), result;
  while (words >> word) {
    if (line.size() > kIndent && line.size() + 1 + word.size() > kWidth) {
      result += line + "\n";
      line.assign(kIndent, ' ');
    }
    if (line.size() > kIndent) line += ' ';
    line += word;
  }
  return result + line + "\n";
}

std::string entry(const std::string& head, const std::string& description) {
  return "  " + head + "\n" + wrapped(description);
}

// "Default 16 images."
std::string default_of(const configs::Flag& flag) {
  if (flag.keys.empty() || flag.values == configs::Flag::Values::kNone)
    return "";
  const configs::Knob& knob = *configs::find_knob(flag.keys.front());
  const std::string value = configs::default_text(knob);
  if (value.empty()) return "";
  return " Default " + value + (knob.unit.empty() ? "" : " " + knob.unit) + ".";
}

std::string run_flag_entry(const configs::Flag& flag) {
  std::string head;
  for (const std::string& spelling : flag.spellings) {
    head += (head.empty() ? "" : ", ") + spelling;
  }
  if (!flag.value_name.empty()) head += " " + flag.value_name;
  return entry(head, flag.description + default_of(flag));
}

// The groups begin at these flags of configs/flags.h's order.
const std::map<std::string, std::string>& group_headings() {
  static const std::map<std::string, std::string> headings = {
      {"--data", "Model, data and batch"}, {"--epochs", "How to train"},
      {"--device", "Where it runs"},       {"--project", "What is written"},
      {"--task", "How to judge"},          {"--config", "Every knob"},
  };
  return headings;
}

std::string run_flags_help(const std::string& command) {
  std::string text, heading, printed_heading;
  for (const configs::Flag& flag : configs::flags()) {
    auto begins = group_headings().find(flag.spellings.front());
    if (begins != group_headings().end()) heading = begins->second;
    if (!is_run_flag_of(flag, command)) continue;
    if (heading != printed_heading) text += "\n" + heading + "\n";
    printed_heading = heading;
    text += run_flag_entry(flag);
  }
  return text;
}

std::string launch_flags_help(const std::string& command) {
  std::string text = "\nProcesses and output\n";
  for (const LaunchFlag& flag : launch_flags()) {
    if (!belongs_to(flag, command) || flag.description.empty()) continue;
    text += entry(
        flag.spelling + (flag.value_name.empty() ? "" : " " + flag.value_name),
        flag.description);
  }
  return text + entry("--help, -h", "This text.");
}

constexpr const char* kExitCodes =
    "\nExit codes: 0 done; 2 the request is wrong; 3 no plan fits; 4 data;\n"
    "5 stopped at a committed step for want of a process or a resource, and\n"
    "130 interrupted: both go on with headroom train --resume.\n";

}  // namespace

std::string general_help() {
  std::string text =
      std::string("headroom ") + wire::kVersion +
      ": trains YOLOv5-family detectors on one or many processes.\n\n"
      "usage: headroom COMMAND [flags]\n\n";
  for (const CommandSummary& command : command_summaries()) {
    text += "  " + command.name + std::string(13 - command.name.size(), ' ') +
            command.summary + "\n";
  }
  return text +
         "\nheadroom COMMAND --help explains a command; headroom --version.\n" +
         kExitCodes;
}

std::string command_help(const std::string& command) {
  const CommandSummary& summary = *find_command(command);
  std::string text = "headroom " + command + ": " + summary.summary +
                     "\n\nusage: headroom " + command +
                     " [flags]\n\nExamples\n";
  for (const std::string& example : summary.examples) {
    text += "  " + example + "\n";
  }
  if (!summary.lesson.empty()) text += "\n" + summary.lesson + "\n";
  if (summary.takes_run_flags) text += run_flags_help(command);
  return text + launch_flags_help(command) + kExitCodes;
}

}  // namespace headroom::cli
