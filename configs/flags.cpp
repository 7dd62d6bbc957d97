#include "configs/flags.h"

#include <algorithm>

#include "configs/knobs.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::configs {
namespace {

using Values = Flag::Values;

constexpr const char* kEveryKnob = "Every knob";

Flag flag_of(const Knob& knob) {
  Flag flag = {.spellings = knob.flag.spellings,
               .keys = {knob.key},
               .value_name = knob.flag.value_name,
               .in_train = knob.flag.commands != KnobFlag::Commands::kVal,
               .in_val = knob.flag.commands != KnobFlag::Commands::kTrain,
               .in_coordinator = knob.flag.in_coordinator,
               .group = knob.group,
               .description = knob.description};
  if (is_switch(knob)) flag.values = Values::kNone;
  if (knob.flag.value_is_optional) flag.values = Values::kOptional;
  if (knob.flag.takes_row) flag.values = Values::kRow;
  if (!knob.flag.second_key.empty()) {
    flag.values = Values::kOneOrTwo;
    flag.keys.push_back(knob.flag.second_key);
  }
  return flag;
}

std::vector<Flag> build_flags() {
  std::vector<Flag> all;
  for (const Knob& knob : knobs()) {
    if (knob.flag.spellings.empty()) continue;
    const auto before = std::ranges::find_if(all, [&](const Flag& flag) {
      return flag.keys.front() == knob.flag.listed_behind;
    });
    all.insert(before == all.end() ? before : before + 1, flag_of(knob));
  }
  all.push_back(
      {.spellings = {"--config"},
       .value_name = "RUN.YAML",
       .group = kEveryKnob,
       .description =
           "This YAML file holds any of the keys (configs/run has "
           "examples). It is read before --hyp and all other flags."});
  all.push_back({.spellings = {"--set"},
                 .value_name = "KEY=VALUE",
                 .may_repeat = true,
                 .group = kEveryKnob,
                 .description =
                     "This sets any key, for example checkpoint_every_steps=3 "
                     "or hyp.lr0=0.02. It may be repeated."});
  return all;
}

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
  const Knob* const knob = find_knob(key);
  if (knob != nullptr && knob->is_byte_size) {
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

// "3" of 0 1 2, in any order.
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

void apply(RunConfig& config, const FlagUse& use) {
  if (use.spelling == "--set") {
    for (const std::string& word : use.values) set_from_set_flag(config, word);
    return;
  }
  const Flag* flag = find_flag(use.spelling);
  HEADROOM_CHECK(flag != nullptr, "no flag " + use.spelling);
  for (size_t i = 0; i < flag->keys.size(); ++i) {
    const Knob& knob = *find_knob(flag->keys[i]);
    std::string text;
    if (flag->values == Values::kNone) {
      text = "true";
    } else if (flag->values == Values::kOptional && use.values.empty()) {
      text = "latest";
    } else {
      HEADROOM_CHECK(!use.values.empty(), use.spelling + " without a value");
      text = flag->values == Values::kRow && use.values.size() > 1
                 ? length_of_row(use)
                 : use.values[std::min(i, use.values.size() - 1)];
    }
    for (const auto& [choice, remedy] : knob.absent_choices) {
      if (text != choice) continue;
      throw bad_flag(use.spelling + " " + text,
                     "this choice of YOLOv5's is not in this version", remedy);
    }
    if (const auto fault =
            knob.is_byte_size ? size_fault(use.spelling, text) : std::nullopt) {
      throw Error("config", fault->what, fault->remedy);
    }
    if (!set_from_text(config, knob, text)) {
      throw bad_flag(use.spelling + " " + text,
                     "'" + text + "' is not " + type_name(knob),
                     "for example " + use.spelling + " " +
                         (knob.flag.takes_row          ? "10"
                          : default_text(knob).empty() ? flag->value_name
                                                       : default_text(knob)));
    }
  }
  if (use.spelling == "--processes" && config.processes <= 0) {
    throw bad_flag(cat("--processes ", config.processes),
                   "a run needs at least one process",
                   "leave the flag out to have the number chosen");
  }
}

// --config and --hyp have been read by then.
void apply_in_order(RunConfig& config, const std::vector<FlagUse>& uses) {
  for (const FlagUse& use : uses) {
    if (use.spelling != "--config" && use.spelling != "--hyp") {
      apply(config, use);
    }
  }
}

// A run file may name a hyp_file; what it writes under hyp: itself wins.
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

const std::vector<Flag>& flags() {
  static const std::vector<Flag> all = build_flags();
  return all;
}

const Flag* find_flag(const std::string& spelling) {
  for (const Flag& flag : flags()) {
    if (std::find(flag.spellings.begin(), flag.spellings.end(), spelling) !=
        flag.spellings.end()) {
      return &flag;
    }
  }
  return nullptr;
}

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

}  // namespace headroom::configs
