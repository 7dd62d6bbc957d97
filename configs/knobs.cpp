#include "configs/knobs.h"

#include <algorithm>
#include <type_traits>

#include "configs/flags.h"
#include "configs/yaml/scalar.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/layout.h"

namespace headroom::configs {
namespace {

using Layout = std::optional<plan::ParallelLayout>;

// The names that a knob of an enum is set with.
template <typename Value>
constexpr const auto& name_table() {
  if constexpr (std::is_same_v<Value, Precision>) {
    return kPrecisions;
  } else if constexpr (std::is_same_v<Value, OptimizerKind>) {
    return kOptimizers;
  } else {
    static_assert(std::is_same_v<Value, plan::Backend>);
    return plan::kBackends;
  }
}

// What a member pointer of RunConfig or of its hyper-parameters refers to.
template <typename Config, typename Field>
auto& field_of(Config& config, Field RunConfig::*member) {
  return config.*member;
}
template <typename Config>
auto& field_of(Config& config, double Hyperparameters::*member) {
  return config.hyp.*member;
}

std::optional<int64_t> whole_or_bytes(const std::string& text, bool bytes) {
  // parse_bytes goes through a double: whole numbers are read exactly first.
  if (const auto number = yaml::parse_int64(text)) return number;
  return bytes ? parse_bytes(text) : std::nullopt;
}

}  // namespace

const std::vector<std::string>& knob_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all;
    for (const Knob& knob : knobs()) all.push_back(knob.key);
    return all;
  }();
  return keys;
}

const Knob* find_knob(const std::string& key) {
  for (const Knob& knob : knobs()) {
    if (knob.key == key) return &knob;
  }
  return nullptr;
}

std::string key_suggestion(const std::string& key) {
  if (find_knob("hyp." + key) != nullptr) {
    return "did you mean 'hyp." + key + "'?";
  }
  std::string spelling = "--" + key;
  std::replace(spelling.begin(), spelling.end(), '_', '-');
  if (const Flag* flag = find_flag(spelling);
      flag != nullptr && !flag->keys.empty()) {
    return "did you mean '" + flag->keys.front() + "'?";
  }
  std::string nearest = yaml::nearest_name(key, knob_keys());
  if (nearest.empty()) nearest = yaml::nearest_name("hyp." + key, knob_keys());
  return nearest.empty() ? "headroom train --help lists the keys"
                         : "did you mean '" + nearest + "'?";
}

std::string type_name(const Knob& knob) {
  if (!knob.choices.empty()) return either_of(knob.choices);
  return std::visit(
      [&](auto member) -> std::string {
        using Value = std::decay_t<decltype(field_of(std::declval<RunConfig&>(),
                                                     member))>;
        if constexpr (std::is_same_v<Value, bool>) {
          return "true or false";
        } else if constexpr (std::is_same_v<Value, uint64_t>) {
          return "a whole number of at least 0";
        } else if constexpr (std::is_same_v<Value, int64_t>) {
          return knob.is_byte_size ? "a size such as 2GiB" : "a whole number";
        } else if constexpr (std::is_same_v<Value, double>) {
          return "a number";
        } else if constexpr (std::is_enum_v<Value>) {
          return either_of(names_in(name_table<Value>()));
        } else if constexpr (std::is_same_v<Value, Layout>) {
          return "a layout such as data=2,pipeline=2";
        } else {
          return "text";
        }
      },
      knob.member);
}

std::string shown_name(const Knob& knob) {
  std::string spelling = "--" + knob.key;
  std::replace(spelling.begin(), spelling.end(), '_', '-');
  for (const Flag& flag : flags()) {
    const bool sets_it = std::find(flag.keys.begin(), flag.keys.end(),
                                   knob.key) != flag.keys.end();
    if (sets_it && flag.spellings.front() != spelling) {
      return knob.key + " (" + flag.spellings.front() + ")";
    }
  }
  return knob.key;
}

std::string value_text(const RunConfig& config, const Knob& knob) {
  return std::visit(
      [&](auto member) -> std::string {
        const auto& value = field_of(config, member);
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>) {
          return value ? "true" : "false";
        } else if constexpr (std::is_same_v<Value, double>) {
          return yaml::exact_text(value);
        } else if constexpr (std::is_enum_v<Value>) {
          return name_in(name_table<Value>(), value);
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return value;
        } else if constexpr (std::is_same_v<Value, Layout>) {
          return value ? plan::short_text(*value) : "";
        } else {
          return std::to_string(value);
        }
      },
      knob.member);
}

std::string default_text(const Knob& knob) {
  return value_text(RunConfig(), knob);
}

bool set_from_text(RunConfig& config, const Knob& knob,
                   const std::string& text) {
  if (!knob.choices.empty() &&
      std::find(knob.choices.begin(), knob.choices.end(), text) ==
          knob.choices.end()) {
    return false;
  }
  return std::visit(
      [&](auto member) {
        auto& field = field_of(config, member);
        using Value = std::decay_t<decltype(field)>;
        std::optional<Value> value;
        if constexpr (std::is_same_v<Value, bool>) {
          value = yaml::parse_bool(text);
        } else if constexpr (std::is_same_v<Value, int64_t>) {
          value = whole_or_bytes(text, knob.is_byte_size);
        } else if constexpr (std::is_same_v<Value, uint64_t>) {
          value = yaml::parse_uint64(text);
        } else if constexpr (std::is_same_v<Value, double>) {
          value = yaml::parse_double(text);
        } else if constexpr (std::is_enum_v<Value>) {
          value = value_in(name_table<Value>(), text);
        } else if constexpr (std::is_same_v<Value, Layout>) {
          value = text.empty() ? Layout() : Layout(plan::parse_layout(text));
        } else {
          value = text;
        }
        if (value) field = *value;
        return value.has_value();
      },
      knob.member);
}

double number_of(const RunConfig& config, const Knob& knob) {
  return std::visit(
      [&](auto member) -> double {
        const auto& value = field_of(config, member);
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::string> ||
                      std::is_same_v<Value, Layout> || std::is_enum_v<Value>) {
          return 0;
        } else {
          return static_cast<double>(value);
        }
      },
      knob.member);
}

// Files have these in quotes. They never had precisions so, and older files are
// to be read.
bool is_text(const Knob& knob) {
  return std::holds_alternative<std::string RunConfig::*>(knob.member) ||
         std::holds_alternative<Layout RunConfig::*>(knob.member) ||
         std::holds_alternative<OptimizerKind RunConfig::*>(knob.member) ||
         std::holds_alternative<plan::Backend RunConfig::*>(knob.member);
}

bool is_switch(const Knob& knob) {
  return std::holds_alternative<bool RunConfig::*>(knob.member);
}

}  // namespace headroom::configs
