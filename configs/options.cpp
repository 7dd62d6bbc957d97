#include "configs/options.h"

#include <algorithm>
#include <type_traits>

#include "configs/yaml/scalar.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/layout.h"

namespace headroom::configs {
namespace {

using Layout = std::optional<plan::ParallelLayout>;

// The names of an enum option's values.
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

// The field of `config`, or the variable, that an option sets.
template <typename Config, typename Field>
auto& field_of(Config& config, Field RunConfig::*member) {
  return config.*member;
}
template <typename Config, typename Field>
auto& field_of(Config& config, Field Hyperparameters::*member) {
  return config.hyp.*member;
}
template <typename Config, typename Field>
auto& field_of(Config& /*config*/, Field* variable) {
  return *variable;
}
// The value of an option without a destination is a text.
template <typename Config>
auto& field_of(Config& /*config*/, std::monostate) {
  static thread_local std::string nothing;
  return nothing = "";
}

template <typename Member>
using ValueOf = std::decay_t<decltype(field_of(std::declval<RunConfig&>(),
                                               std::declval<Member>()))>;

// Calls `use` with the field that the option sets.
template <typename Config, typename Use>
auto with_field(Config& config, const Option& option, const Use& use) {
  return std::visit([&](auto member) { return use(field_of(config, member)); },
                    option.member);
}

template <typename Value>
std::optional<Value> read_value(const Option& option, const std::string& text) {
  if constexpr (std::is_same_v<Value, bool>) {
    return yaml::parse_bool(text);
  } else if constexpr (std::is_same_v<Value, int64_t>) {
    // parse_bytes uses a double, so first read whole numbers exactly.
    if (const auto number = yaml::parse_int64(text)) return number;
    return option.is_byte_size ? parse_bytes(text) : std::nullopt;
  } else if constexpr (std::is_same_v<Value, int>) {
    const auto number = parse_whole(text, std::numeric_limits<int>::min(),
                                    std::numeric_limits<int>::max());
    return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
  } else if constexpr (std::is_same_v<Value, uint64_t>) {
    return yaml::parse_uint64(text);
  } else if constexpr (std::is_same_v<Value, double>) {
    return yaml::parse_double(text);
  } else if constexpr (std::is_enum_v<Value>) {
    return value_in(name_table<Value>(), text);
  } else if constexpr (std::is_same_v<Value, Layout>) {
    return text.empty() ? Layout() : Layout(plan::parse_layout(text));
  } else {
    return text;
  }
}

const Option* find_in(const std::vector<Option>& options, auto is_it) {
  const auto found = std::ranges::find_if(options, is_it);
  return found == options.end() ? nullptr : &*found;
}

bool has_name(const Option& option, const std::string& name) {
  return std::ranges::count(option.names, name) > 0;
}

// Turns "batch_size" into "--batch-size".
std::string flag_like(std::string key) {
  std::ranges::replace(key, '_', '-');
  return "--" + key;
}

}  // namespace

Option option(const std::string& form, std::vector<std::string> commands,
              std::string advice, OptionRules rules) {
  Option made{std::move(rules)};
  size_t at = 0;
  while (form.compare(at, 2, "--") == 0) {
    const size_t end = std::min(form.find_first_of(", ", at), form.size());
    made.names.push_back(form.substr(at, end - at));
    at = std::min(form.find_first_not_of(", ", end), form.size());
  }
  made.value_name = form.substr(at);
  if (made.value_name.empty()) {
    made.value_name = joined(made.choices, "|");
  }
  made.commands = std::move(commands);
  made.advice = std::move(advice);
  return made;
}

std::vector<Option> grouped(OptionGroups parts) {
  std::vector<Option> all;
  for (auto& [group, part] : parts) {
    for (Option& option : part) {
      option.group = group;
      all.push_back(std::move(option));
    }
  }
  return all;
}

const Option* find_key(const std::string& key) {
  return find_in(run_options(),
                 [&](const Option& option) { return option.key == key; });
}

const Option* find_flag(const std::string& name) {
  return find_in(run_options(),
                 [&](const Option& option) { return has_name(option, name); });
}

const Option* find_option(const std::string& command, const std::string& name) {
  const auto is_it = [&](const Option& option) {
    return belongs_to(option, command) && has_name(option, name);
  };
  const Option* const of_run = find_in(run_options(), is_it);
  return of_run != nullptr ? of_run : find_in(command_options(), is_it);
}

bool distinguishes_runs(const Option& option) {
  for (const char* folder : {"project", "name", "exist_ok", "resume"}) {
    if (option.key == folder) return false;
  }
  return !option.names.empty() || option.key.starts_with("hyp.");
}

bool belongs_to(const Option& option, const std::string& command) {
  return std::ranges::count(option.commands, command) > 0;
}

std::string key_suggestion(const std::string& key) {
  if (find_key("hyp." + key) != nullptr) {
    return "did you mean 'hyp." + key + "'?";
  }
  if (const Option* flag = find_flag(flag_like(key))) {
    return "did you mean '" + flag->key + "'?";
  }
  std::vector<std::string> keys;
  for (const Option& option : run_options()) keys.push_back(option.key);
  std::string nearest = yaml::nearest_name(key, keys);
  if (nearest.empty()) nearest = yaml::nearest_name("hyp." + key, keys);
  return nearest.empty() ? "headroom train --help lists the keys"
                         : "did you mean '" + nearest + "'?";
}

std::string type_name(const Option& option) {
  if (!option.choices.empty()) return either_of(option.choices);
  const auto name_of = [&](auto member) -> std::string {
    using Value = ValueOf<decltype(member)>;
    if constexpr (std::is_same_v<Value, bool>) {
      return "true or false";
    } else if constexpr (std::is_same_v<Value, uint64_t>) {
      return "a whole number of at least 0";
    } else if constexpr (std::is_integral_v<Value>) {
      return option.is_byte_size ? "a size such as 2GiB" : "a whole number";
    } else if constexpr (std::is_same_v<Value, double>) {
      return "a number";
    } else if constexpr (std::is_enum_v<Value>) {
      return either_of(names_in(name_table<Value>()));
    } else if constexpr (std::is_same_v<Value, Layout>) {
      return "a layout such as data=2,pipeline=2";
    } else {
      return "text";
    }
  };
  return std::visit(name_of, option.member);
}

std::string table_name(const Option& option) {
  return option.names.empty() ? option.key : option.names.front().substr(2);
}

std::string shown_name(const Option& option) {
  // The key of a width has no flag of its own: the flag of its height sets both
  // keys.
  const Option* const flag = find_in(run_options(), [&](const Option& other) {
    return !other.names.empty() &&
           (other.key == option.key || other.second_key == option.key);
  });
  if (flag == nullptr || flag->names.front() == flag_like(option.key)) {
    return option.key;
  }
  return option.key + " (" + flag->names.front() + ")";
}

std::string value_text(const RunConfig& config, const Option& option) {
  return with_field(config, option, [](const auto& value) -> std::string {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::is_same_v<Value, double>) {
      return yaml::exact_text(value);
    } else if constexpr (std::is_enum_v<Value>) {
      return name_in(name_table<Value>(), value);
    } else if constexpr (std::is_same_v<Value, Layout>) {
      return value ? plan::short_text(*value) : "";
    } else if constexpr (std::is_integral_v<Value>) {
      return std::to_string(value);
    } else {
      return value;
    }
  });
}

std::string default_text(const Option& option) {
  return option.key.empty() ? option.default_value
                            : value_text(RunConfig(), option);
}

std::string advice_with_default(const Option& option) {
  const std::string value = is_switch(option) ? "" : default_text(option);
  if (value.empty()) return option.advice;
  std::string unit = option.unit;
  if (value == "1" && unit.ends_with('s')) {
    unit.resize(unit.size() - (unit.ends_with("sses") ? 2 : 1));
  }
  return option.advice + " The default is " + value +
         (unit.empty() ? "" : " " + unit) + ".";
}

bool set_from_text(RunConfig& config, const Option& option,
                   const std::string& text) {
  if (!option.choices.empty() && std::ranges::count(option.choices, text) == 0)
    return false;
  return with_field(config, option, [&](auto& field) {
    const auto value = read_value<std::decay_t<decltype(field)>>(option, text);
    if (value) field = *value;
    return value.has_value();
  });
}

double number_of(const RunConfig& config, const Option& option) {
  return with_field(config, option, [](const auto& value) -> double {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_arithmetic_v<Value>) {
      return static_cast<double>(value);
    } else {
      return 0;
    }
  });
}

// Older files have precisions without quotes, which can still be read.
bool is_text(const Option& option) {
  const auto is_quoted = [](auto member) {
    using Value = ValueOf<decltype(member)>;
    return !std::is_arithmetic_v<Value> && !std::is_same_v<Value, Precision>;
  };
  return std::visit(is_quoted, option.member);
}

}  // namespace headroom::configs
