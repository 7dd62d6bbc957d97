// Option: something that a command line or a run.yaml may say, declared once.
//
// The parser, the reading and writing of YAML, --set, the refusals of values
// out of range, the help and the reference page follow from the declaration. A
// new key of a run is a member of RunConfig, which holds the default, and an
// entry in run_options.cpp; every other flag is an entry in
// command_options.cpp.
#pragma once

#include <array>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "configs/run_config.h"
#include "parallel/base/named_values.h"

namespace headroom::configs {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// The numbers that are accepted, both ends included.
struct NumberRange {
  double low = -kUnbounded;
  double high = kUnbounded;

  bool contains(double value) const { return value >= low && value <= high; }
};

// What a declaration may leave out.
struct OptionRules {
  std::string unit = {};  // "images", "pixels", "bytes", ... or ""
  NumberRange range = {};
  // The words that are accepted; empty: any text. Where the form names no
  // value, they stand for it in the help.
  std::vector<std::string> choices = {};
  // Of an option that is no key of a run: what the program takes where the
  // option is not given; "" where the program chooses.
  std::string default_value = {};
  // --img HEIGHT [WIDTH]: the key that a second value sets. A single value sets
  // both keys.
  std::string second_key = {};
  int most_values = 1;             // of options without a key, joined by spaces
  bool value_is_optional = false;  // --resume [DIR]
  bool may_repeat = false;         // each use adds to the ones before
  bool may_be_empty = false;       // "" is then as if it were not given
  bool is_required = false;        // a tool refuses to start without it
  bool is_internal = false;        // headroom's own processes give it: no help
  bool is_byte_size = false;       // accepts "2GiB"
  // The value says what a step is or which samples it uses. A resumed run keeps
  // it, because the committed steps were made with it.
  bool defines_steps = false;
  // The value is part of the plan. A resumed run restores all of these, or none
  // where one of them is given.
  bool of_plan = false;
  // Read when a run starts; has no effect on resume.
  bool of_start = false;
};

struct Option : OptionRules {
  // Where the value goes: a member of RunConfig, or a variable of the program.
  // Nowhere: the command looks the value up itself.
  using Member =
      std::variant<std::monostate, bool RunConfig::*, int64_t RunConfig::*,
                   uint64_t RunConfig::*, double RunConfig::*,
                   std::string RunConfig::*, Precision RunConfig::*,
                   OptimizerKind RunConfig::*, plan::Backend RunConfig::*,
                   std::optional<plan::ParallelLayout> RunConfig::*,
                   double Hyperparameters::*, bool*, int*, int64_t*, double*,
                   std::string*, std::filesystem::path*>;

  // "--img", "--imgsz"; none: a key for --set and run.yaml alone, or a word of
  // the worker's command line that stands without a flag.
  std::vector<std::string> names = {};
  std::string value_name = {};             // "N" in the help; "" for a switch
  std::vector<std::string> commands = {};  // those that take it as a flag
  std::string key = {};  // "global_batch_size", "hyp.lr0"; "": no key of a run
  Member member = {};
  // Sentences for the help: what it is, what a larger or smaller value does,
  // when to change it.
  std::string advice = {};
  std::string group = {};  // the heading in the help
};

// An option as the help shows it: "--batch, --batch-size N", "--json",
// "RUN.YAML".
Option option(const std::string& form, std::vector<std::string> commands,
              std::string advice, OptionRules rules = {});

// The value of options that take one size or two, in pixels.
inline constexpr char kPixelSize[] = "HEIGHT [WIDTH]";

// The words of --precision, in the order of its help.
inline constexpr auto kPrecisions =
    std::to_array<NamedValue<Precision>>({{Precision::kAuto, "auto"},
                                          {Precision::kFp32, "fp32"},
                                          {Precision::kBf16, "bf16"},
                                          {Precision::kFp16, "fp16"},
                                          {Precision::kFp64, "fp64"}});

// The keys of a run, with a flag or without, in the order of the help; the
// hyper-parameters follow hyp_file.
const std::vector<Option>& run_options();

// The other options, in the order of the help: --config and --set, how
// processes find each other, what is printed, what tools do.
const std::vector<Option>& command_options();

// The group of --config and --set.
inline constexpr char kAnyKey[] = "Every key";

// Whether the option says something of a run's keys.
inline bool is_of_run(const Option& option) {
  return !option.key.empty() || option.group == kAnyKey;
}

// The option with this key; nullptr if there is none.
const Option* find_key(const std::string& key);

// The key's option that may be written as `name` ("--img-size"); nullptr if
// there is none.
const Option* find_flag(const std::string& name);

// The option of `command` that may be written as `name`, of a run or not;
// nullptr if there is none.
const Option* find_option(const std::string& command, const std::string& name);

bool belongs_to(const Option& option, const std::string& command);
inline bool is_switch(const Option& option) {
  return option.value_name.empty();
}

// A remedy that names the key that somebody who wrote `key` probably meant.
// Knows flags ("batch"), bare hyper-parameters ("lr0") and typing errors.
std::string key_suggestion(const std::string& key);

// "true or false", "a whole number", ...: for the help and for refusals.
std::string type_name(const Option& option);

// The key, and the flag where it is spelled otherwise, as refusals show them:
// "global_batch_size (--batch)", "epochs".
std::string shown_name(const Option& option);

// The value as text that set_from_text reads back exactly.
std::string value_text(const RunConfig& config, const Option& option);
std::string default_text(const Option& option);

// The advice, and where there is one the default: "... The default is 16
// images."
std::string advice_with_default(const Option& option);

// False when `text` is not of the option's type or not one of its choices; the
// range is left to check_run_config. Throws Error for a layout that is none.
// An option that is bound to a variable sets it and leaves `config` alone.
bool set_from_text(RunConfig& config, const Option& option,
                   const std::string& text);

// The number that `config` holds there; 0 for texts.
double number_of(const RunConfig& config, const Option& option);

// Whether YAML files have the value in quotes.
bool is_text(const Option& option);

}  // namespace headroom::configs
