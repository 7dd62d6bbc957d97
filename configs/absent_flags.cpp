#include "configs/absent_flags.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "configs/options.h"
#include "configs/yaml/scalar.h"
#include "configs/yaml/shipped_files.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"

namespace headroom::configs {
namespace {

// The content of configs/flags/yolov5.yaml, by command ("run" for train and
// val) and key.
struct Answers {
  std::map<std::string, std::vector<std::string>> published;
  std::map<std::string, std::vector<AbsentFlag>> absent;
  std::map<std::string, std::map<std::string, std::string>> choices;
};

Answers read_answers() {
  const yaml::YamlValue root =
      yaml::parse_yaml(yaml::shipped_text("flags/yolov5.yaml"), "yolov5.yaml");
  Answers answers;
  for (const auto& [command, place, flags] :
       yaml::require(root, "published").entries) {
    for (const yaml::YamlValue& flag : flags.items) {
      answers.published[command].push_back(flag.scalar);
    }
  }
  for (const auto& [command, place, flags] :
       yaml::require(root, "refused").entries) {
    for (const auto& [spellings, place_of_flag, answer] : flags.entries) {
      std::istringstream words(spellings);
      for (std::string spelling; words >> spelling;) {
        answers.absent[command].push_back(
            {spelling, yaml::as_text(yaml::require(answer, "why"), "why"),
             yaml::as_text(yaml::require(answer, "use"), "use")});
      }
    }
  }
  for (const auto& [command, place, flags] :
       yaml::require(root, "ignored").entries) {
    for (const auto& [form, place_of_flag, why] : flags.entries) {
      const size_t end = form.find(' ');
      answers.absent[command].push_back(
          {form.substr(0, end), why.scalar, "", end != std::string::npos});
    }
  }
  for (const auto& [key, place, choices] :
       yaml::require(root, "choices").entries) {
    for (const auto& [choice, place_of_choice, remedy] : choices.entries) {
      answers.choices[key][choice] = remedy.scalar;
    }
  }
  return answers;
}

const Answers& answers() {
  static const Answers all = read_answers();
  return all;
}

template <typename Value>
const Value& value_or_none(const std::map<std::string, Value>& values,
                           const std::string& name) {
  static const Value none{};
  const auto found = values.find(name);
  return found == values.end() ? none : found->second;
}

}  // namespace

const std::vector<std::string>& published_flags(const std::string& command) {
  const bool is_as_train = command == "plan" || command == "coordinator";
  return value_or_none(answers().published, is_as_train ? "train" : command);
}

const std::vector<AbsentFlag>& absent_flags(const std::string& command) {
  const bool is_run = command == "train" || command == "val" ||
                      command == "plan" || command == "coordinator";
  return value_or_none(answers().absent, is_run ? "run" : command);
}

const AbsentFlag* find_absent_flag(const std::string& command,
                                   const std::string& spelling) {
  for (const AbsentFlag& flag : absent_flags(command)) {
    if (flag.spelling == spelling) return &flag;
  }
  return nullptr;
}

std::optional<std::string> absent_choice(const std::string& key,
                                         const std::string& choice) {
  const auto& choices = value_or_none(answers().choices, key);
  const auto found = choices.find(choice);
  if (found == choices.end()) return std::nullopt;
  return found->second;
}

std::string answer_unknown_flag(
    const std::string& command, const std::string& spelling,
    const std::vector<std::string>& more_spellings) {
  if (const AbsentFlag* flag = find_absent_flag(command, spelling)) {
    if (flag->is_ignored()) return spelling + " changes nothing: " + flag->why;
    throw Error("config", spelling + ": " + flag->why, flag->remedy);
  }
  if (find_flag(spelling) != nullptr) {
    const std::string other = command == "val" ? "train" : "val";
    throw Error("config",
                spelling + " is a flag of headroom " + other +
                    ", not of headroom " + command,
                "leave it out, or set its key with --set (headroom " + other +
                    " --help)");
  }
  const Option* const of_plan = find_option("plan", spelling);
  if (of_plan != nullptr && of_plan->commands.size() == 1) {
    throw Error(
        "config",
        spelling + " is a flag of headroom plan, not of headroom " + command,
        "ask headroom plan, and leave it out here: a run takes what "
        "--device and --memory-limit give it");
  }
  std::vector<std::string> known = more_spellings;
  for (const Option& option : run_options()) {
    if (!belongs_to(option, command)) continue;
    known.insert(known.end(), option.names.begin(), option.names.end());
  }
  throw Error(
      "config", "unknown flag " + spelling,
      yaml::suggestion(spelling, known,
                       "headroom " + command + " --help lists the flags"));
}

}  // namespace headroom::configs
