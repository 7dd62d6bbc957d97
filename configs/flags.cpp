#include "configs/flags.h"

#include <algorithm>

#include "configs/absent_flags.h"
#include "configs/options.h"
#include "configs/recipe.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::configs {
namespace {

Error bad_flag(const std::string& use, const std::string& what,
               const std::string& remedy) {
  return Error("config", use + ": " + what, remedy);
}

void set_from_set_flag(RunConfig& config, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) {
    throw bad_flag("--set " + word, "there is no '='",
                   "write --set KEY=VALUE, for example --set hyp.lr0=0.02");
  }
  const std::string key = word.substr(0, equals);
  const Option* const option = find_key(key);
  if (option != nullptr && option->is_byte_size) {
    const std::string written = word.substr(equals + 1);
    if (const auto fault = size_fault(key, written)) {
      throw bad_flag("--set " + word, "it has no unit, or is no size",
                     "write --set " + key + "=8GiB");
    }
  }
  set_value(config, key, word.substr(equals + 1));
  if (key == "processes" && config.processes == 0) {
    throw bad_flag("--set " + word, "a run needs at least one process",
                   "leave it out to have the number chosen");
  }
}

// Returns how many layers a list names: "3" for 0 1 2 in any order. Refuses a
// list with a gap.
std::string length_of_row(const FlagUse& use) {
  std::vector<std::string> row = use.values;
  std::ranges::sort(row, {}, [](const std::string& word) {
    return std::pair(word.size(), word);
  });
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] == std::to_string(i)) continue;
    std::string all;
    for (const std::string& word : use.values) all += " " + word;
    throw bad_flag(use.spelling + all,
                   "layers are taken from the first on, without a gap",
                   "write " + use.spelling + " N for the first N layers");
  }
  return std::to_string(row.size());
}

// Sets the key of `option` to `text`, or throws a refusal that names the flag.
void set_from_flag(RunConfig& config, const std::string& spelling,
                   const Option& option, const std::string& text) {
  if (option.is_byte_size) {
    if (const auto fault = size_fault(spelling, text)) {
      throw Error("config", fault->what, fault->remedy);
    }
  }
  if (set_from_text(config, option, text)) return;
  if (const auto remedy = absent_choice(option.key, text)) {
    throw bad_flag(spelling + " " + text, "this choice is not in this version",
                   *remedy);
  }
  std::string example = default_text(option);
  if (option.most_values > 1) example = "10";
  if (example.empty()) example = option.value_name;
  throw bad_flag(spelling + " " + text,
                 "'" + text + "' is not " + type_name(option),
                 "for example " + spelling + " " + example);
}

void apply(RunConfig& config, const FlagUse& use) {
  if (use.spelling == "--set") {
    for (const std::string& word : use.values) set_from_set_flag(config, word);
    return;
  }
  const Option* const option = find_flag(use.spelling);
  HEADROOM_CHECK(option != nullptr, "no flag " + use.spelling);
  std::string text = "true";  // a switch
  if (option->value_is_optional && use.values.empty()) {
    text = "latest";
  } else if (!is_switch(*option)) {
    HEADROOM_CHECK(!use.values.empty(), use.spelling + " without a value");
    const bool is_row = option->most_values > 1 && use.values.size() > 1;
    text = is_row ? length_of_row(use) : use.values.front();
  }
  set_from_flag(config, use.spelling, *option, text);
  if (!option->second_key.empty()) {
    set_from_flag(config, use.spelling, *find_key(option->second_key),
                  use.values.back());
  }
  if (option->key == "processes" && config.processes <= 0) {
    throw bad_flag(cat("--processes ", config.processes),
                   "a run needs at least one process",
                   "leave the flag out to have the number chosen");
  }
}

// The recipe is applied before all other flags, because they outrank it. An
// unknown one is refused when the flags are applied.
void apply_recipe_of(RunConfig& config, const std::vector<FlagUse>& uses) {
  constexpr std::string_view kKey = "recipe=";
  for (const FlagUse& use : uses) {
    for (const std::string& word : use.values) {
      if (use.spelling == "--recipe") apply_recipe(config, word);
      if (use.spelling == "--set" && word.starts_with(kKey)) {
        apply_recipe(config, word.substr(kKey.size()));
      }
    }
  }
}

// Applies all flags except --config and --hyp, which were applied before.
void apply_in_order(RunConfig& config, const std::vector<FlagUse>& uses) {
  for (const FlagUse& use : uses) {
    if (use.spelling != "--config" && use.spelling != "--hyp") {
      apply(config, use);
    }
  }
}

// A run file may name a hyp_file; the run file's own hyp: entries win.
RunConfig read_run_file(const std::string& file) {
  const std::string text = yaml::read_config_file(file, "config");
  RunConfig config = parse_run_config(text, file);
  if (config.hyp_file.empty()) return config;
  RunConfig from_hyp_file;
  load_hyperparameters(from_hyp_file, config.hyp_file);
  overlay_run_config(from_hyp_file, text, file);
  return from_hyp_file;
}

}  // namespace

RunConfig run_config_from_flags(const std::string& command,
                                const std::vector<FlagUse>& uses) {
  RunConfig config;
  std::string hyp_file;
  for (const FlagUse& use : uses) {
    HEADROOM_CHECK((use.spelling != "--config" && use.spelling != "--hyp") ||
                       use.values.size() == 1,
                   use.spelling + " without a file");
    if (use.spelling == "--config") config = read_run_file(use.values.front());
    if (use.spelling == "--hyp") hyp_file = use.values.front();
  }
  config.command = command;
  apply_recipe_of(config, uses);
  if (!hyp_file.empty()) load_hyperparameters(config, hyp_file);
  apply_in_order(config, uses);
  return config;
}

RunConfig overlay_flags(RunConfig base, const std::vector<FlagUse>& uses) {
  for (const FlagUse& use : uses) {
    if (use.spelling == "--config") {
      throw bad_flag("--config", "a resumed run has its own run.yaml",
                     "give single flags or --set KEY=VALUE instead");
    }
    if (use.spelling == "--hyp") load_hyperparameters(base, use.values.at(0));
  }
  apply_in_order(base, uses);
  return base;
}

void require_augment_program(const RunConfig& config,
                             const std::string& command) {
  const std::string program = shell_word(config.augment_program);
  if (config.augment_program == command) return;
  throw Error("augment",
              "the run's augment_program is " + program +
                  ", but --augment-program here is " + shell_word(command) +
                  ": no file starts a program, and its samples define the run",
              config.augment_program.empty()
                  ? "leave the flag out, or start a new run with it"
                  : "give --augment-program " + program +
                        " here too, or start a run without it");
}

void take_augment_program(RunConfig& config, const std::string& command) {
  std::string& program = config.augment_program;
  if (config.resume.empty() && program.empty()) program = command;
  require_augment_program(config, command);
}

std::vector<FlagUse> changed_flags(const RunConfig& before,
                                   const RunConfig& after,
                                   const std::vector<std::string>& keys) {
  std::vector<FlagUse> uses;
  for (const std::string& key : keys) {
    const Option& option = *find_key(key);
    std::vector<std::string> values = {value_text(after, option)};
    bool is_changed = values.front() != value_text(before, option);
    if (!option.second_key.empty()) {
      const Option& second = *find_key(option.second_key);
      values.push_back(value_text(after, second));
      is_changed |= values.back() != value_text(before, second);
      if (values.front() == values.back()) values.pop_back();
    }
    if (!is_changed || values.front().empty()) continue;
    uses.push_back({option.names.front(), std::move(values)});
  }
  return uses;
}

}  // namespace headroom::configs
