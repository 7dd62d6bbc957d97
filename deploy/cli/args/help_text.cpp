#include "deploy/cli/args/help_text.h"

#include "configs/arguments.h"
#include "configs/options.h"
#include "configs/yaml/shipped_files.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "proto/version.h"

namespace headroom::cli {
namespace {

using configs::help_entry;
using configs::Option;

CommandSummary summary_of(const std::string& name,
                          const yaml::YamlValue& command) {
  CommandSummary summary{.name = name};
  for (const auto& [key, place, value] : command.entries) {
    if (key == "does") summary.summary = value.scalar;
    if (key == "lesson") summary.lesson = value.scalar;
    if (key == "operands") summary.operands_name = value.scalar;
    if (key == "most_operands") {
      summary.most_operands = static_cast<size_t>(yaml::as_int64(value, key));
    }
    for (const yaml::YamlValue& example : value.items) {
      summary.examples.push_back(example.scalar);
    }
  }
  return summary;
}

std::string options_help(const std::string& command) {
  std::string text, heading;
  for (const auto* options :
       {&configs::run_options(), &configs::command_options()}) {
    for (const Option& option : *options) {
      if (!belongs_to(option, command) || option.is_internal) continue;
      if (option.group != heading) text += "\n" + option.group + "\n";
      heading = option.group;
      text += help_entry(configs::form_of(option), advice_with_default(option));
    }
  }
  return text + help_entry("--help, -h", "This prints the text that you read.");
}

std::string exit_codes_help() {
  std::string text = "\nExit codes\n";
  for (const ExitCodeSummary& code : exit_code_summaries()) {
    text += help_entry(std::to_string(code.exit_code), code.meaning);
  }
  return text;
}

}  // namespace

const std::vector<CommandSummary>& command_summaries() {
  static const std::vector<CommandSummary> all = [] {
    const std::string file = "flags/commands.yaml";
    std::vector<CommandSummary> summaries;
    for (const auto& [name, place, command] :
         yaml::parse_yaml(yaml::shipped_text(file), file).entries) {
      summaries.push_back(summary_of(name, command));
    }
    return summaries;
  }();
  return all;
}

const CommandSummary* find_command(const std::string& name) {
  for (const CommandSummary& command : command_summaries()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

const std::vector<ExitCodeSummary>& exit_code_summaries() {
  const auto of = [](ExitCode code, const char* meaning) {
    return ExitCodeSummary{static_cast<int>(code), meaning};
  };
  static const std::vector<ExitCodeSummary> summaries = {
      of(ExitCode::kDone, "the command is done"),
      {kInternalError, "the program itself has a fault"},
      of(ExitCode::kRequest, "the request is wrong"),
      of(ExitCode::kNoPlan, "no plan fits; the message says what would"),
      of(ExitCode::kData, "the data cannot be used"),
      of(ExitCode::kResource,
         "the run stopped at a committed step, because a process or a resource "
         "is missing; headroom train --resume goes on"),
      of(ExitCode::kInterrupted,
         "the run was interrupted; headroom train --resume goes on"),
  };
  return summaries;
}

std::string general_help() {
  std::string text =
      std::string("headroom ") + wire::kVersion +
      ": trains YOLO-family detectors on one or many processes.\n\n"
      "usage: headroom COMMAND [flags]\n\n";
  for (const CommandSummary& command : command_summaries()) {
    text += "  " + command.name + std::string(13 - command.name.size(), ' ') +
            command.summary + "\n";
  }
  return text +
         "\nheadroom COMMAND --help explains a command; headroom --version.\n" +
         exit_codes_help();
}

std::string command_help(const std::string& command) {
  const CommandSummary& summary = *find_command(command);
  std::string text =
      "headroom " + command + ": " + summary.summary + "\n\nusage: headroom " +
      command +
      (summary.operands_name.empty() ? "" : " " + summary.operands_name) +
      " [flags]\n\nExamples\n";
  for (const std::string& example : summary.examples) {
    text += "  " + example + "\n";
  }
  if (!summary.lesson.empty()) text += "\n" + summary.lesson;
  return text + options_help(command) + exit_codes_help();
}

}  // namespace headroom::cli
