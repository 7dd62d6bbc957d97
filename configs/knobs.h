// The one table of knobs: every member of RunConfig with its key, type, unit,
// range and a paragraph of description.
//
// Reading YAML, writing it, --set, the flags (configs/flags.h), the refusals of
// out-of-range values and the command line's help all follow from it, so a new
// knob is a member of RunConfig and a row here.
//
// Threads: immutable; any thread may read.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "configs/run_config.h"

namespace headroom::configs {

struct Knob {
  using Member = std::variant<bool RunConfig::*, int64_t RunConfig::*,
                              uint64_t RunConfig::*, double RunConfig::*,
                              std::string RunConfig::*, Precision RunConfig::*,
                              std::optional<plan::ParallelLayout> RunConfig::*,
                              double Hyperparameters::*>;

  static constexpr double kUnbounded = std::numeric_limits<double>::infinity();

  Knob(std::string key, Member member, std::string unit,
       std::string description, double low = -kUnbounded,
       double high = kUnbounded, std::vector<std::string> choices = {},
       bool is_byte_size = false)
      : key(std::move(key)),
        member(member),
        unit(std::move(unit)),
        description(std::move(description)),
        low(low),
        high(high),
        choices(std::move(choices)),
        is_byte_size(is_byte_size) {}

  std::string key;  // "global_batch_size"; hyper-parameters: "hyp.lr0"
  Member member;
  std::string unit;         // "images", "pixels", "bytes", ... or ""
  std::string description;  // sentences, for the help
  double low;               // numbers outside [low, high] are refused
  double high;
  std::vector<std::string> choices;  // of a word; empty: any text
  bool is_byte_size;                 // accepts "2GiB"
};

// In the order of RunConfig; hyper-parameters after hyp_file.
const std::vector<Knob>& knobs();
std::vector<Knob> hyperparameter_knobs();  // the part under "hyp."
const std::vector<std::string>& knob_keys();

// nullptr when there is no such key.
const Knob* find_knob(const std::string& key);

// The key that somebody who wrote `key` meant, as a remedy in words. Knows
// flags ("batch"), bare hyper-parameters ("lr0") and typing errors.
std::string key_suggestion(const std::string& key);

// "true or false", "a whole number", ...: for the help and for refusals.
std::string type_name(const Knob& knob);

// For refusals: the key, and the flag where it is spelled otherwise:
// "global_batch_size (--batch)", "epochs".
std::string shown_name(const Knob& knob);

// The value as text that set_from_text reads back exactly.
std::string value_text(const RunConfig& config, const Knob& knob);
std::string default_text(const Knob& knob);

// False when `text` is not of the knob's type or not one of its choices; the
// range is left to check_run_config. Throws Error for a layout that is none.
bool set_from_text(RunConfig& config, const Knob& knob,
                   const std::string& text);

// The number that `config` holds there; 0 for texts.
double number_of(const RunConfig& config, const Knob& knob);
bool is_text(const Knob& knob);
bool is_switch(const Knob& knob);

}  // namespace headroom::configs
