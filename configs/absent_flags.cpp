#include "configs/absent_flags.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "configs/options.h"
#include "configs/yaml/scalar.h"
#include "configs/yaml/shipped_files.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::configs {
namespace {

// An entry of the section "renamed": what to write in headroom for the flag or
// the pair NAME, if its value matches `pattern`.
struct Renaming {
  std::string name;     // "--val", or "conf" for a name that only pairs have
  std::string pattern;  // a shell pattern for the value
  std::string words;    // "--cfg *", where * is the value; "" if none
};

// The content of configs/flags/yolov5.yaml, by command ("run" for train, val,
// plan and coordinator) and key.
struct Answers {
  std::map<std::string, std::vector<std::string>> published;
  std::map<std::string, std::vector<AbsentFlag>> absent;
  std::map<std::string, std::vector<Renaming>> renamed;
  std::map<std::string, std::string> modes;
  std::map<std::string, OtherWord> words;
  std::map<std::string, std::map<std::string, std::string>> choices;
};

std::vector<std::string> split(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// "--dashed-name" or "underscored_name", from the other.
std::string flag_of(const std::string& name) {
  std::string flag = name;
  std::ranges::replace(flag, '_', '-');
  return "--" + flag;
}
std::string key_of(const std::string& flag) {
  std::string key = flag.substr(std::min<size_t>(2, flag.size()));
  std::ranges::replace(key, '-', '_');
  return key;
}

std::string with_value(std::string words, const std::string& value) {
  const size_t star = words.find('*');
  return star == std::string::npos ? words : words.replace(star, 1, value);
}

// The answer to a flag that has another name in headroom. The name may depend
// on the flag's value, so the answer lists one for each pattern of values.
AbsentFlag answer_of(const std::vector<Renaming>& renamed,
                     const std::string& name) {
  std::vector<std::string> uses;
  for (const Renaming& one : renamed) {
    if (one.name != name) continue;
    const std::string given =
        one.pattern == "*" ? "" : " for " + name + " " + one.pattern;
    uses.push_back(
        (one.words.empty() ? "nothing" : with_value(one.words, "VALUE")) +
        given);
  }
  return {name, "this is written otherwise here", "use " + joined(uses, ", ")};
}

// Calls `add` with each command, and with each word of the keys below it.
void for_each_entry(const yaml::YamlValue& root, const std::string& part,
                    const auto& add) {
  for (const auto& [command, place, entries] :
       yaml::require(root, part).entries) {
    for (const auto& [key, place_of_key, value] : entries.entries) {
      add(command, key, value);
    }
  }
}

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
  for_each_entry(
      root, "refused",
      [&](const std::string& command, const std::string& key,
          const yaml::YamlValue& answer) {
        for (const std::string& spelling : split(key)) {
          answers.absent[command].push_back(
              {spelling, yaml::as_text(yaml::require(answer, "why"), "why"),
               yaml::as_text(yaml::require(answer, "use"), "use")});
        }
      });
  for_each_entry(root, "ignored",
                 [&](const std::string& command, const std::string& key,
                     const yaml::YamlValue& why) {
                   const std::vector<std::string> form = split(key);
                   answers.absent[command].push_back(
                       {form.front(), why.scalar, "", form.size() > 1});
                 });
  for_each_entry(
      root, "renamed",
      [&](const std::string& command, const std::string& key,
          const yaml::YamlValue& words) {
        const std::vector<std::string> form = split(key);
        answers.renamed[command].push_back(
            {form.front(), form.size() > 1 ? form[1] : "*", words.scalar});
      });
  for (const auto& [command, renamed] : answers.renamed) {
    std::string last;
    for (const Renaming& one : renamed) {
      if (one.name.starts_with("--") && one.name != last) {
        answers.absent[command].push_back(answer_of(renamed, one.name));
      }
      last = one.name;
    }
  }
  for (const auto& [mode, place, command] :
       yaml::require(root, "modes").entries) {
    answers.modes[mode] = command.scalar;
  }
  for (const auto& [words, place, answer] :
       yaml::require(root, "words").entries) {
    for (const std::string& word : split(words)) {
      answers.words[word] = {
          yaml::as_text(yaml::require(answer, "why"), "why"),
          yaml::as_text(yaml::require(answer, "use"), "use")};
    }
  }
  for_each_entry(root, "choices",
                 [&](const std::string& key, const std::string& choice,
                     const yaml::YamlValue& remedy) {
                   answers.choices[key][choice] = remedy.scalar;
                 });
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

// The key under which a command's answers are.
std::string answers_key(const std::string& command) {
  const bool is_run = command == "train" || command == "val" ||
                      command == "plan" || command == "coordinator";
  return is_run ? "run" : command;
}

// Python writes lists as [0,2]; here their values are separate words.
std::vector<std::string> values_of(const Option& option, std::string value) {
  if (value.starts_with('[')) {
    std::erase_if(value,
                  [](char c) { return c == '[' || c == ']' || c == ' '; });
  }
  if (option.most_values > 1 || !option.second_key.empty()) {
    std::ranges::replace(value, ',', ' ');
    return split(value);
  }
  return {value};
}

// Whether `value` switches an argument off, as Python programs write it.
bool is_off(const std::string& value) {
  return value.empty() || value == "None" || yaml::parse_bool(value) == false;
}

}  // namespace

const std::vector<std::string>& published_flags(const std::string& command) {
  const bool is_as_train = command == "plan" || command == "coordinator";
  return value_or_none(answers().published, is_as_train ? "train" : command);
}

const std::vector<AbsentFlag>& absent_flags(const std::string& command) {
  return value_or_none(answers().absent, answers_key(command));
}

const AbsentFlag* find_absent_flag(const std::string& command,
                                   const std::string& spelling) {
  for (const AbsentFlag& flag : absent_flags(command)) {
    if (key_of(flag.spelling) == key_of(spelling)) return &flag;
  }
  return nullptr;
}

const OtherWord* find_other_word(const std::string& word) {
  const auto found = answers().words.find(word);
  return found == answers().words.end() ? nullptr : &found->second;
}

std::string command_of_mode(const std::string& mode) {
  return value_or_none(answers().modes, mode);
}

std::vector<std::string> words_of_pair(const std::string& command,
                                       const std::string& pair) {
  const size_t equals = std::min(pair.find('='), pair.size());
  const std::string name = pair.substr(0, equals);
  const std::string value = pair.substr(std::min(equals + 1, pair.size()));
  const std::string flag = flag_of(name);
  for (const Renaming& one :
       value_or_none(answers().renamed, answers_key(command))) {
    if (one.name != name && one.name != flag) continue;
    if (fnmatch(one.pattern.c_str(), value.c_str(), 0) != 0) continue;
    std::vector<std::string> words = split(one.words);
    for (std::string& word : words) word = with_value(word, value);
    return words;
  }
  if (const Option* const option = find_option(command, flag)) {
    if (is_off(value)) return {};
    if (is_switch(*option)) return {flag};
    std::vector<std::string> words = values_of(*option, value);
    words.insert(words.begin(), option->names.front());
    return words;
  }
  if (answers_key(command) == "run" && find_key("hyp." + name) != nullptr) {
    return {"--set", "hyp." + pair};
  }
  const AbsentFlag* const absent = find_absent_flag(command, flag);
  if (absent != nullptr && (absent->is_ignored() || is_off(value))) return {};
  answer_unknown_flag(command, flag);
  return {};
}

std::optional<std::string> absent_choice(const std::string& key,
                                         const std::string& choice) {
  const auto& choices = value_or_none(answers().choices, key);
  const auto found = choices.find(choice);
  if (found == choices.end()) return std::nullopt;
  return found->second;
}

std::string answer_unknown_flag(const std::string& command,
                                const std::string& spelling) {
  if (const AbsentFlag* flag = find_absent_flag(command, spelling)) {
    if (flag->is_ignored()) return spelling + " changes nothing: " + flag->why;
    throw Error("config", spelling + ": " + flag->why, flag->remedy);
  }
  const std::string key = key_of(spelling);
  const bool is_run = answers_key(command) == "run";
  for (const std::string& prefix : {std::string("hyp."), std::string()}) {
    const Option* const option = find_key(prefix + key);
    if (!is_run || option == nullptr || !option->names.empty()) continue;
    throw Error("config", spelling + " has no flag of its own",
                "use --set " + option->key + "=VALUE");
  }
  if (const Option* const flag = find_flag(spelling)) {
    const std::string& other = flag->commands.front();
    throw Error("config",
                spelling + " is a flag of headroom " + other +
                    ", not of headroom " + command,
                is_run ? "leave it out, or set its key with --set (headroom " +
                             other + " --help)"
                       : "leave it out");
  }
  const Option* const of_plan = find_option("plan", spelling);
  if (is_run && of_plan != nullptr && of_plan->commands.size() == 1) {
    throw Error(
        "config",
        spelling + " is a flag of headroom plan, not of headroom " + command,
        "ask headroom plan, and leave it out here: a run takes what "
        "--device and --memory-limit give it");
  }
  for (const auto& [other, flags] : answers().absent) {
    const bool is_there = std::ranges::any_of(
        flags, [&](const auto& flag) { return key_of(flag.spelling) == key; });
    if (!is_there) continue;
    throw Error("config",
                spelling + ": YOLOv5 or yolo has this for " +
                    (other == "run" ? "training" : other) +
                    ", not for headroom " + command,
                "leave it out");
  }
  std::vector<std::string> known = {"--help"};
  for (const auto* options : {&run_options(), &command_options()}) {
    for (const Option& option : *options) {
      if (!belongs_to(option, command) || option.is_internal) continue;
      known.insert(known.end(), option.names.begin(), option.names.end());
    }
  }
  throw Error(
      "config", "unknown flag " + spelling,
      yaml::suggestion(spelling, known,
                       "headroom " + command + " --help lists the flags"));
}

}  // namespace headroom::configs
