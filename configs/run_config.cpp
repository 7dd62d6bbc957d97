#include "configs/run_config.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>

#include "configs/options.h"
#include "configs/recipe.h"
#include "configs/yaml/quoted_text.h"
#include "configs/yaml/shipped_files.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"

namespace headroom::configs {

AugmentPlace augment_place(const RunConfig& config) {
  if (config.augment_on == "device") return {true, "as asked for"};
  if (config.augment_on == "cpu") return {false, "as asked for"};
  if (!config.augment_program.empty()) {
    return {false, "--augment-program gets its samples on the host"};
  }
  if (!computes_on_cards(config.device)) {
    return {false, "the run is on the CPU"};
  }
  if (config.synthetic_input) {
    return {false, "synthetic input is not rendered"};
  }
  return {true, "a card renders faster than the loader's threads"};
}

namespace {

const std::string kHypPrefix = "hyp.";

// A list or mapping of YAML as --set writes it: "1,2", "cat=1,dog=2".
std::string list_text(const yaml::YamlValue& list) {
  std::string text;
  const auto add = [&](const std::string& one) {
    text += (text.empty() ? "" : ",") + one;
  };
  for (const yaml::YamlValue& item : list.items) add(item.scalar);
  for (const yaml::YamlEntry& entry : list.entries) {
    add(entry.key + "=" + entry.value.scalar);
  }
  return text;
}

void set_from_yaml(RunConfig& config, const Option& option,
                   const yaml::YamlValue& value) {
  const bool is_plain_text = value.kind == yaml::YamlValue::Kind::kScalar &&
                             (is_text(option) || !value.quoted);
  // 'project:' without a value is the empty text.
  const bool is_empty_text =
      value.kind == yaml::YamlValue::Kind::kNull && is_text(option);
  bool is_set = false;
  try {
    if (option.takes_list && value.kind != yaml::YamlValue::Kind::kScalar) {
      set_from_text(config, option, list_text(value));
      return;
    }
    is_set = (is_plain_text && set_from_text(config, option, value.scalar)) ||
             (is_empty_text && set_from_text(config, option, ""));
  } catch (const Error& error) {
    yaml::refuse(value.place, error.text(), error.remedy());
  }
  if (!is_set) {
    yaml::refuse(value.place, option.key + " is " + yaml::describe(value),
                 "write " + type_name(option) + " here");
  }
}

// Reads the entries of `mapping` as keys with `prefix`.
void read_keys(RunConfig& config, const yaml::YamlValue& mapping,
               const std::string& prefix) {
  if (mapping.kind == yaml::YamlValue::Kind::kNull) return;
  if (mapping.kind != yaml::YamlValue::Kind::kMapping) {
    yaml::refuse(mapping.place, "this is " + yaml::describe(mapping),
                 "write lines of the form 'key: value'");
  }
  for (const yaml::YamlEntry& entry : mapping.entries) {
    if (prefix.empty() && entry.key == "hyp") {
      read_keys(config, entry.value, kHypPrefix);
      continue;
    }
    const Option* option = find_key(prefix + entry.key);
    if (option == nullptr ||
        (prefix.empty() && entry.key.starts_with("hyp."))) {
      yaml::refuse(entry.key_place, "unknown key '" + prefix + entry.key + "'",
                   option == nullptr ? key_suggestion(prefix + entry.key)
                                     : "write it below 'hyp:'");
    }
    set_from_yaml(config, *option, entry.value);
  }
}

}  // namespace

RunConfig parse_run_config(const std::string& text, const std::string& file) {
  RunConfig config;
  overlay_run_config(config, text, file);
  return config;
}

void overlay_run_config(RunConfig& config, const std::string& text,
                        const std::string& file) {
  const yaml::YamlValue root = yaml::parse_yaml(text, file);
  // The file's other keys outrank its recipe, wherever it is.
  const yaml::YamlValue* recipe = root.find("recipe");
  if (recipe != nullptr) apply_recipe(config, recipe->scalar);
  read_keys(config, root, "");
}

std::string to_yaml(const RunConfig& config) {
  std::string text;
  std::string hyp = "hyp:\n";
  for (const Option& option : run_options()) {
    const std::string value = value_text(config, option);
    const bool below_hyp = option.key.starts_with(kHypPrefix);
    const std::string line =
        (below_hyp ? "  " + option.key.substr(kHypPrefix.size()) : option.key) +
        ": " + (is_text(option) ? yaml::quoted_text(value) : value) + "\n";
    (below_hyp ? hyp : text) += line;
  }
  return text + hyp;
}

void set_value(RunConfig& config, const std::string& key,
               const std::string& value) {
  const Option* option = find_key(key);
  if (option == nullptr) {
    throw Error("config", "--set " + key + ": there is no such key",
                key_suggestion(key));
  }
  if (!set_from_text(config, *option, value)) {
    const std::string example = default_text(*option);
    throw Error("config",
                "--set " + key + "=" + value + ": '" + value + "' is not " +
                    type_name(*option),
                example.empty() ? "headroom train --help explains it"
                                : "for example --set " + key + "=" + example);
  }
}

void begin_hours(RunConfig& config, std::chrono::system_clock::time_point now) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch());
  config.ends_at = config.hours > 0
                       ? seconds.count() + std::llround(config.hours * 3600)
                       : 0;
}

void load_hyperparameters(RunConfig& config, const std::string& file) {
  std::string name = file;
  std::error_code error;
  if (!std::filesystem::exists(file, error) && name.starts_with(kHypPrefix)) {
    name = name.substr(kHypPrefix.size());  // published as hyp.scratch-low.yaml
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
  }
  const yaml::NamedText source =
      yaml::file_or_shipped(name, "hyp", "config", file);
  yaml::YamlValue root = yaml::parse_yaml(source.text, source.file);
  if (root.find("dfl") != nullptr && root.find("anchor_free_box") == nullptr) {
    for (yaml::YamlEntry& entry : root.entries) {
      if (entry.key == "box" || entry.key == "cls") {
        entry.key = "anchor_free_" + entry.key;
      }
    }
  }
  read_keys(config, root, kHypPrefix);
  config.hyp_file = file;
}

}  // namespace headroom::configs
