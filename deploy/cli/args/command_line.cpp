#include "deploy/cli/args/command_line.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>
#include <utility>

#include "configs/absent_flags.h"
#include "configs/arguments.h"
#include "configs/options.h"
#include "configs/yaml/scalar.h"
#include "deploy/cli/args/help_text.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::cli {
namespace {

using configs::is_flag;
using configs::Option;
using configs::spelling_of;

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error("command line", what, remedy);
}

// Whether `word` is NAME=VALUE.
bool is_pair(const std::string& word) {
  const size_t end =
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789");
  return end != std::string::npos && end > 0 && word[end] == '=';
}

// Whether `word` belongs to "yolo TASK MODE NAME=VALUE" or is a script's name.
bool is_of_others(const std::string& word) {
  return is_pair(word) || word == "yolo" ||
         !configs::command_of_mode(word).empty() ||
         configs::find_other_word(word) != nullptr;
}

// Refuses a command line that is written for another program ("detect train
// data=d.yaml epochs=3 imgsz=320") and prints the same command as headroom
// accepts it. `command` is the command that the line names, or "".
[[noreturn]] void refuse_words_of_others(const std::vector<std::string>& words,
                                         std::string command) {
  std::string first;
  std::vector<std::pair<std::string, bool>> rest;  // word, whether a pair
  for (size_t at = 0; at < words.size();) {
    if (is_flag(words[at])) {
      const std::string name = spelling_of(words[at]);
      const Option* const of_run = configs::find_flag(name);
      const Option* const option =
          of_run != nullptr ? of_run : configs::find_option(command, name);
      size_t end = at + 1;
      if (option != nullptr) {
        configs::take_use(*option, words, end = at, "headroom --help");
      }
      for (; at < end; ++at) rest.emplace_back(words[at], false);
      continue;
    }
    std::string word = words[at++];
    if (first.empty() && is_of_others(word)) first = word;
    if (word.starts_with("mode=") || word.starts_with("task=")) {
      word.erase(0, 5);
    }
    if (const auto* const other = configs::find_other_word(word)) {
      refuse("'" + word + "': " + other->why, other->use);
    }
    const std::string mode = configs::command_of_mode(word);
    if (!mode.empty()) command = mode;
    if (mode.empty() && word != "detect" && word != "yolo") {
      rest.emplace_back(word, is_pair(word));
    }
  }
  if (command.empty()) command = "train";
  std::string line = "headroom " + command;
  for (const auto& [word, is_argument] : rest) {
    const std::vector<std::string> written =
        is_argument ? configs::words_of_pair(command, word)
                    : std::vector<std::string>{word};
    for (const std::string& part : written) line += " " + quoted(part);
  }
  refuse("'" + first + "' is written otherwise here", "type " + line);
}

// Splits the arguments into flags and paths, and collects notes for the user.
class Parser {
 public:
  // REQUIRES: `line` has its command and words; the other fields are filled in.
  explicit Parser(CommandLine& line)
      : line_(line), summary_(*find_command(line.command)) {}

  void parse() {
    std::vector<std::string> words = line_.words;
    for (std::string& word : words) word = in_full(word);
    for (size_t at = 0; at < words.size();) {
      const std::string name = spelling_of(words[at]);
      if (!is_flag(name)) {
        take_word(words, at);
      } else if (const Option* option = find_option(name)) {
        take_option(*option, words, at);
      } else if (const auto* flag = find_absent(name)) {
        take_absent(*flag, words, at);
      } else {
        configs::answer_unknown_flag(line_.command, name);
      }
    }
  }

 private:
  std::string help() const { return "headroom " + line_.command + " --help"; }

  const configs::AbsentFlag* find_absent(const std::string& name) const {
    return configs::find_absent_flag(line_.command, name);
  }
  const Option* find_option(const std::string& name) const {
    return configs::find_option(line_.command, name);
  }

  // Completes an abbreviated flag: users type --conf and --opt, as argparse
  // allows. Refuses an abbreviation that fits several of YOLOv5's flags.
  // Underscores in a flag (--save_period) count as dashes.
  std::string in_full(const std::string& word) const {
    const std::string beginning = spelling_of(word);
    std::string dashed = beginning;
    std::ranges::replace(dashed, '_', '-');
    if (is_flag(word) && find_option(dashed) != nullptr) {
      return dashed + word.substr(beginning.size());
    }
    if (!is_flag(word) || beginning.size() < 3 ||
        find_absent(beginning) != nullptr) {
      return word;
    }
    std::set<std::string> meant;  // a flag with two spellings counts once
    std::vector<std::string> all;
    for (const std::string& name : configs::published_flags(line_.command)) {
      if (!name.starts_with(beginning)) continue;
      const Option* const option = find_option(name);
      if (option == nullptr && find_absent(name) == nullptr) continue;
      if (meant.insert(option ? option->names.front() : name).second) {
        all.push_back(name);
      }
    }
    if (all.size() > 1) {
      refuse(beginning + " could be " + joined(all, " or "),
             "write it in full");
    }
    return all.empty() ? word : all.front() + word.substr(beginning.size());
  }

  // Handles a word that belongs to no flag.
  void take_word(const std::vector<std::string>& words, size_t& at) {
    if (last_.starts_with("--weights ") || last_.starts_with("--weights=")) {
      while (at < words.size() && !is_flag(words[at]))
        last_ += " " + words[at++];
      refuse(
          last_ + ": one file of weights is taken, ensembles are not supported",
          "name one");
    }
    const std::string& word = words[at];
    if (word.starts_with('-')) {
      configs::answer_unknown_flag(line_.command, spelling_of(word));
    }
    if (line_.operands.size() >= summary_.most_operands) {
      if (is_of_others(word))
        refuse_words_of_others(line_.words, line_.command);
      refuse("'" + word + "' belongs to no flag",
             help() + " shows what may stand where");
    }
    line_.operands.push_back(word);
    ++at;
  }

  void take_absent(const configs::AbsentFlag& flag,
                   const std::vector<std::string>& words, size_t& at) {
    const std::string& first = last_ = words[at++];
    line_.notes.push_back(
        configs::answer_unknown_flag(line_.command, flag.spelling));
    require_once(flag.spelling, first);
    const bool has_value = first.find('=') != std::string::npos;
    if (flag.takes_value && !has_value && at < words.size() &&
        !is_flag(words[at])) {
      ++at;
    }
  }

  void take_option(const Option& option, const std::vector<std::string>& words,
                   size_t& at) {
    configs::OptionUse use = configs::take_use(option, words, at, help());
    last_ = use.text;
    if (!option.may_repeat) {
      require_once(option.names.front(), use.text);
    } else if (!set_before_
                    .insert(use.name + " " + spelling_of(use.values.front()))
                    .second) {
      refuse(use.text + (is_of_run(option) ? ": the key is set twice"
                                           : ": the program is named twice"),
             is_of_run(option) ? "set it once" : "name it once");
    }
    if (is_of_run(option)) {
      line_.run_flags.push_back({option.names.front(), std::move(use.values)});
    } else {
      std::string& value = line_.command_flags[use.name];
      value += (value.empty() ? "" : "\n") + joined(use.values, " ");
    }
  }

  // Refuses a flag that is used twice, so that no value is silently replaced.
  void require_once(const std::string& flag, const std::string& text) {
    const auto [first, is_new] = uses_.emplace(flag, text);
    if (is_new) return;
    refuse(first->second + " and " + text + ": the flag is given twice",
           "give it once");
  }

  CommandLine& line_;
  const CommandSummary& summary_;
  std::string last_;                         // the previous option, as typed
  std::map<std::string, std::string> uses_;  // used flags, as first typed
  std::set<std::string> set_before_;  // keys of --set, programs of --on-event
};

void refuse_command(const std::vector<std::string>& words) {
  const std::string& name = words.front();
  if (is_of_others(name)) refuse_words_of_others(words, "");
  std::vector<std::string> names;
  for (const CommandSummary& command : command_summaries()) {
    names.push_back(command.name);
  }
  refuse(
      "unknown command '" + name + "'",
      yaml::suggestion(name, names, "the commands are " + joined(names, ", ")));
}

}  // namespace

std::string CommandLine::value_of(const std::string& command_flag) const {
  const auto given = command_flags.find(command_flag);
  if (given != command_flags.end()) return given->second;
  const configs::Option* const option =
      configs::find_option(command, command_flag);
  HEADROOM_CHECK(option != nullptr, command + " has no flag " + command_flag);
  return option->default_value;
}

int CommandLine::count_of(const std::string& command_flag) const {
  const std::string text = value_of(command_flag);
  const auto count = parse_whole(text, 1, std::numeric_limits<int>::max());
  if (!count) {
    throw Error("command line", command_flag + " " + text + " is no count",
                "give a whole number of at least 1");
  }
  return static_cast<int>(*count);
}

std::string quoted(const std::string& word) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string("-_./=,:+@%").find(c) != std::string::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

std::string as_typed(const std::string& text,
                     const std::vector<std::string>& words) {
  std::string result = text;
  const auto is_part = [](char c) {
    return c == '-' || std::isalnum(static_cast<unsigned char>(c)) != 0;
  };
  const auto replace = [&](const std::vector<std::string>& spellings) {
    const std::string& shown = spellings.front();
    const auto typed =
        std::ranges::find_if(words, [&](const std::string& word) {
          return std::ranges::count(spellings, configs::spelling_of(word)) > 0;
        });
    if (typed == words.end() || configs::spelling_of(*typed) == shown) return;
    const std::string name = configs::spelling_of(*typed);
    for (size_t at = result.find(shown); at != std::string::npos;
         at = result.find(shown, at)) {
      const size_t end = at + shown.size();
      const bool is_whole = (at == 0 || !is_part(result[at - 1])) &&
                            (end == result.size() || !is_part(result[end]));
      if (is_whole) result.replace(at, shown.size(), name);
      at += is_whole ? name.size() : shown.size();
    }
  };
  for (const configs::Option& option : configs::run_options()) {
    if (!option.names.empty()) replace(option.names);
  }
  return result;
}

CommandLine parse_command_line(const std::vector<std::string>& words) {
  CommandLine line;
  if (words.empty()) {
    throw Error("command line", "no command", "headroom --help lists them");
  }
  const auto is_help = [](const std::string& word) {
    return word == "--help" || word == "-h";
  };
  const std::string& first = words.front();
  line.help =
      first == "help" || std::any_of(words.begin(), words.end(), is_help);
  line.version = first == "--version";
  if (line.version || is_help(first) || first == "help") return line;
  if (find_command(first) == nullptr) refuse_command(words);
  line.command = first;
  line.words = {words.begin() + 1, words.end()};
  if (!line.help) Parser(line).parse();
  return line;
}

}  // namespace headroom::cli
