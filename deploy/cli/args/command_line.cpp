#include "deploy/cli/args/command_line.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>

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

// Splits the arguments into flags, paths and notes.
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
      } else if (const auto* flag = find_absent(name)) {
        take_absent(*flag, words, at);
      } else if (const Option* option = find_option(name)) {
        take_option(*option, words, at);
      } else {
        refuse_flag(name);
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
  // allows. Refuses an abbreviation of several of YOLOv5's flags.
  std::string in_full(const std::string& word) const {
    const std::string beginning = spelling_of(word);
    if (!is_flag(word) || beginning.size() < 3 ||
        find_option(beginning) != nullptr ||
        find_absent(beginning) != nullptr) {
      return word;
    }
    std::set<std::string> meant;  // each flag once, whatever its spelling
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
    if (word.starts_with('-')) refuse_flag(spelling_of(word));
    if (line_.operands.size() >= summary_.most_operands) {
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
        configs::answer_unknown_flag(line_.command, flag.spelling, {}));
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

  [[noreturn]] void refuse_flag(const std::string& name) const {
    std::vector<std::string> known = {"--help"};
    for (const Option& option : configs::command_options()) {
      if (belongs_to(option, line_.command) && !option.is_internal) {
        known.push_back(option.names.front());
      }
    }
    if (find_option("--config") != nullptr) {
      // Throws Error; the message explains a flag of another command or
      // program. Ignored flags (configs/absent_flags.h) were accepted before.
      configs::answer_unknown_flag(
          line_.command == "coordinator" ? "train" : line_.command, name,
          known);
    }
    refuse("unknown flag " + name,
           yaml::suggestion(name, known, help() + " lists them"));
  }

  CommandLine& line_;
  const CommandSummary& summary_;
  std::string last_;                         // the previous option, as typed
  std::map<std::string, std::string> uses_;  // each flag as first typed
  std::set<std::string> set_before_;  // keys of --set, programs of --on-event
};

void refuse_command(const std::string& name) {
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
  if (find_command(first) == nullptr) refuse_command(first);
  line.command = first;
  line.words = {words.begin() + 1, words.end()};
  if (!line.help) Parser(line).parse();
  return line;
}

}  // namespace headroom::cli
