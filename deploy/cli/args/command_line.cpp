#include "deploy/cli/args/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <limits>
#include <set>

#include "configs/absent_flags.h"
#include "configs/command_flags.h"
#include "configs/yaml/scalar.h"
#include "deploy/cli/args/help_text.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::cli {
namespace {

constexpr int kLongestRow = 10'000;

// One option of the parser, and what it stands for.
struct Entry {
  CLI::Option* option = nullptr;
  const configs::Flag* run_flag = nullptr;
  const configs::CommandFlag* command_flag = nullptr;
  std::string absent_spelling;
};

// What a flag of `command` may be called besides those of configs/flags.h.
std::vector<std::string> command_spellings(const std::string& command) {
  std::vector<std::string> spellings = {"--help"};
  for (const configs::CommandFlag& flag : configs::command_flags()) {
    if (belongs_to(flag, command) && !flag.is_internal) {
      spellings.push_back(flag.spellings.front());
    }
  }
  return spellings;
}

CLI::Option* add_words(CLI::App& app, const std::string& names, int least,
                       int most) {
  // The words are read back from the option, in the order of its uses.
  CLI::Option* option = app.add_option(
      names, [](const CLI::results_t&) { return true; }, "");
  option->expected(least, most);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->allow_extra_args(most > 1);
  return option;
}

Entry add_run_flag(CLI::App& app, const configs::Flag& flag) {
  const std::string names = joined(flag.spellings, ",");
  Entry entry;
  entry.run_flag = &flag;
  switch (flag.values) {
    case configs::Flag::Values::kNone:
      entry.option = app.add_flag(names);
      break;
    case configs::Flag::Values::kOne:
      entry.option = add_words(app, names, 1, 1);
      break;
    case configs::Flag::Values::kOneOrTwo:
      entry.option = add_words(app, names, 1, 2);
      break;
    case configs::Flag::Values::kOptional:
      entry.option = add_words(app, names, 0, 1);
      break;
    case configs::Flag::Values::kRow:
      entry.option = add_words(app, names, 1, kLongestRow);
      break;
  }
  return entry;
}

std::vector<Entry> add_flags(CLI::App& app, const std::string& command) {
  std::vector<Entry> entries;
  for (const configs::CommandFlag& flag : configs::command_flags()) {
    if (!belongs_to(flag, command)) continue;
    for (const std::string& spelling : flag.spellings) {
      Entry entry;
      entry.command_flag = &flag;
      entry.option = flag.value_name.empty()
                         ? app.add_flag(spelling)
                         : add_words(app, spelling, 1, flag.most_values);
      entries.push_back(entry);
    }
  }
  if (find_command(command)->takes_run_flags) {
    for (const configs::Flag& flag : configs::flags()) {
      if (is_run_flag_of(flag, command)) {
        entries.push_back(add_run_flag(app, flag));
      }
    }
  }
  for (const configs::AbsentFlag& flag : configs::absent_flags(command)) {
    Entry entry;
    entry.absent_spelling = flag.spelling;
    entry.option = flag.max_values == 0
                       ? app.add_flag(flag.spelling)
                       : add_words(app, flag.spelling, 0, flag.max_values);
    entries.push_back(entry);
  }
  return entries;
}

[[noreturn]] void refuse_word(const std::string& command,
                              const std::string& word) {
  const std::string help = "headroom " + command + " --help";
  if (!word.starts_with('-')) {
    throw Error("command line", "'" + word + "' belongs to no flag",
                help + " shows what may stand where");
  }
  const std::string spelling = word.substr(0, word.find('='));
  if (find_command(command)->takes_run_flags) {
    // Knows the flags of other versions and programs too; it does not return,
    // for what it would only remark upon was no unknown word to begin with.
    configs::answer_unknown_flag(command == "coordinator" ? "train" : command,
                                 spelling, command_spellings(command));
  }
  throw Error("command line", "unknown flag " + spelling,
              yaml::suggestion(spelling, command_spellings(command),
                               help + " lists them"));
}

std::string value_name_of(const Entry& entry) {
  if (entry.run_flag != nullptr) return entry.run_flag->value_name;
  return entry.command_flag != nullptr ? entry.command_flag->value_name : "";
}

[[noreturn]] void refuse_value(const std::string& command, const Entry& entry,
                               const std::string& spelling) {
  throw Error("command line",
              spelling + " must be followed by " + value_name_of(entry),
              "headroom " + command + " --help shows how to write it");
}

// CLI11 complains only about how many values there are.
[[noreturn]] void refuse_use(const std::string& command,
                             const std::vector<Entry>& entries,
                             const CLI::ParseError& error) {
  const std::string what = error.what();
  const std::string spelling = what.substr(0, what.find(':'));
  for (const Entry& entry : entries) {
    if (entry.option->check_name(spelling) && !value_name_of(entry).empty()) {
      refuse_value(command, entry, spelling);
    }
  }
  throw Error("command line", what,
              "headroom " + command + " --help shows how to write it");
}

bool is_flag(const std::string& word) { return word.starts_with("--"); }

bool may_repeat(const Entry& entry) {
  return entry.run_flag != nullptr && entry.run_flag->may_repeat;
}

// CLI11 takes the next flag for a value that was forgotten, and any number of
// words for a list.
void check_values(const std::string& command, const Entry& entry,
                  const std::vector<std::string>& values) {
  size_t most = 1;
  if (entry.command_flag != nullptr) {
    most = static_cast<size_t>(entry.command_flag->most_values);
  } else {
    using Values = configs::Flag::Values;
    if (entry.run_flag->values == Values::kOneOrTwo) most = 2;
    if (entry.run_flag->values == Values::kRow) most = kLongestRow;
  }
  if (values.size() > most ||
      std::any_of(values.begin(), values.end(), is_flag)) {
    refuse_value(command, entry, entry.option->get_name());
  }
}

void take_use(CommandLine& line, const Entry& entry, size_t use_index) {
  // The parser counts each value of a longer list as a use.
  if (!may_repeat(entry) && use_index > 0) return;
  std::vector<std::string> values = entry.option->results();
  if (may_repeat(entry)) values = {values.at(use_index)};
  if (!entry.absent_spelling.empty()) {
    line.notes.push_back(
        configs::answer_unknown_flag(line.command, entry.absent_spelling, {}));
    return;
  }
  check_values(line.command, entry, values);
  if (entry.command_flag != nullptr) {
    std::string& text = line.command_flags[entry.option->get_name()];
    text = entry.command_flag->value_name.empty() ? "" : joined(values, " ");
    return;
  }
  if (entry.run_flag->values == configs::Flag::Values::kNone) {
    // --cos-lr=false, which CLI11 would take.
    if (values.front() != "true") {
      throw Error("command line",
                  entry.option->get_name() + " is a switch and takes no value",
                  "leave it out to have it off");
    }
    values.clear();
  }
  if (values == std::vector<std::string>{""} &&
      entry.run_flag->values == configs::Flag::Values::kOptional) {
    values.clear();
  }
  line.run_flags.push_back({entry.run_flag->spellings.front(), values});
}

// What an option stands for: the same for all spellings of a flag.
const void* identity(const Entry& entry) {
  if (entry.run_flag != nullptr) return entry.run_flag;
  if (entry.command_flag != nullptr) return entry.command_flag;
  return entry.option;
}

std::string spelling_of(const std::string& word) {
  return word.substr(0, word.find('='));
}

const Entry* find_entry(const std::vector<Entry>& entries,
                        const std::string& spelling) {
  const auto entry = std::ranges::find_if(entries, [&](const Entry& one) {
    return is_flag(spelling) && one.option->check_name(spelling);
  });
  return entry == entries.end() ? nullptr : &*entry;
}

// `word` with the flag whose beginning it is: people type --conf and --opt, as
// argparse lets them. What begins several of YOLOv5's flags is refused.
std::string in_full(const std::string& command,
                    const std::vector<Entry>& entries,
                    const std::string& word) {
  const std::string beginning = spelling_of(word);
  if (!is_flag(word) || beginning.size() < 3 ||
      find_entry(entries, beginning) != nullptr) {
    return word;
  }
  std::set<const void*> meant;
  std::string full, all;
  for (const std::string& name : configs::published_flags(command)) {
    const Entry* const entry = find_entry(entries, name);
    if (!name.starts_with(beginning) || entry == nullptr) continue;
    if (!meant.insert(identity(*entry)).second) continue;
    full = name;
    all += (all.empty() ? "" : " or ") + name;
  }
  if (meant.size() > 1) {
    throw Error("command line", beginning + " could be " + all,
                "write it in full");
  }
  return meant.empty() ? word : full + word.substr(beginning.size());
}

void refuse_several_weights(const std::string& use) {
  throw Error("command line",
              use +
                  ": one file of weights is taken, ensembles are not "
                  "supported",
              "name one");
}

// No later use of a flag wins over an earlier one without a word.
void check_uses(const std::vector<Entry>& entries,
                const std::vector<std::string>& words) {
  std::map<const void*, std::string> uses;
  std::set<std::string> keys;  // keys that --set sets
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string spelling = spelling_of(words[i]);
    const Entry* const entry = find_entry(entries, spelling);
    if (entry == nullptr) continue;
    std::string use = words[i];
    size_t num_values = spelling == words[i] ? 0 : 1;
    for (; i + 1 < words.size() && !is_flag(words[i + 1]); ++i, ++num_values) {
      use += " " + words[i + 1];
    }
    if (spelling == "--weights" && num_values > 1) refuse_several_weights(use);
    const bool is_new =
        may_repeat(*entry)
            ? keys.insert(spelling_of(use.substr(spelling.size() + 1))).second
            : uses.emplace(identity(*entry), use).second;
    if (is_new) continue;
    if (may_repeat(*entry)) {
      throw Error("command line", use + ": the key is set twice",
                  "set it once");
    }
    throw Error(
        "command line",
        uses.at(identity(*entry)) + " and " + use + ": the flag is given twice",
        "give it once");
  }
}

void parse_flags(CommandLine& line, std::vector<std::string> words) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  const std::vector<Entry> entries = add_flags(app, line.command);
  for (std::string& word : words) {
    word = in_full(line.command, entries, word);
  }
  check_uses(entries, words);
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    refuse_use(line.command, entries, error);
  }
  for (const std::string& word : app.remaining()) {
    if (!word.starts_with('-') &&
        line.run_directories.size() <
            find_command(line.command)->most_run_directories) {
      line.run_directories.push_back(word);
      continue;
    }
    refuse_word(line.command, word);
  }
  std::map<const CLI::Option*, size_t> uses;
  for (const CLI::Option* option : app.parse_order()) {
    auto entry = std::find_if(
        entries.begin(), entries.end(),
        [&](const Entry& candidate) { return candidate.option == option; });
    take_use(line, *entry, uses[option]++);
  }
}

void refuse_command(const std::string& name) {
  std::vector<std::string> names;
  for (const CommandSummary& command : command_summaries()) {
    names.push_back(command.name);
  }
  throw Error(
      "command line", "unknown command '" + name + "'",
      yaml::suggestion(name, names, "the commands are " + joined(names, ", ")));
}

}  // namespace

bool is_run_flag_of(const configs::Flag& flag, const std::string& command) {
  if (command == "coordinator") return flag.in_train && flag.in_coordinator;
  return command == "val" ? flag.in_val : flag.in_train;  // plan: as train
}

std::string CommandLine::value_of(const std::string& command_flag) const {
  const auto given = command_flags.find(command_flag);
  if (given != command_flags.end()) return given->second;
  const configs::CommandFlag* const flag =
      configs::find_command_flag(command, command_flag);
  HEADROOM_CHECK(flag != nullptr, command + " has no flag " + command_flag);
  return flag->default_value;
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
          return std::ranges::count(spellings, spelling_of(word)) > 0;
        });
    if (typed == words.end() || spelling_of(*typed) == shown) return;
    const std::string name = spelling_of(*typed);
    for (size_t at = result.find(shown); at != std::string::npos;
         at = result.find(shown, at)) {
      const size_t end = at + shown.size();
      const bool is_whole = (at == 0 || !is_part(result[at - 1])) &&
                            (end == result.size() || !is_part(result[end]));
      if (is_whole) result.replace(at, shown.size(), name);
      at += is_whole ? name.size() : shown.size();
    }
  };
  for (const configs::Flag& flag : configs::flags()) replace(flag.spellings);
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
  if (!line.help) parse_flags(line, line.words);
  return line;
}

}  // namespace headroom::cli
