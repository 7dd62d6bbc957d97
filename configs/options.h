// Option: a setting of the command line or of run.yaml, declared once.
//
// The parser, the reading and writing of YAML, --set, range checks, the help
// and the reference page are derived from the declaration. A new key of a run
// is a member of RunConfig, which holds the default, and an entry in
// run_options.cpp; every other flag is an entry in command_options.cpp.
#pragma once

#include <array>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "configs/run_config.h"
#include "parallel/plan/named_values.h"

namespace headroom::configs {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// The accepted numbers, including both ends.
struct NumberRange {
  double low = -kUnbounded;
  double high = kUnbounded;

  bool contains(double value) const { return value >= low && value <= high; }
};

// The optional parts of a declaration.
struct OptionRules {
  std::string unit = {};  // "images", "pixels", "bytes", ... or ""
  NumberRange range = {};
  // The accepted words; if empty, any text. If the option's form has no value
  // name, the help shows these words instead.
  std::vector<std::string> choices = {};
  // The default of an option that is not a key of a run; "" if the program
  // chooses.
  std::string default_value = {};
  // The key that a second value sets, as in --img HEIGHT [WIDTH]. A single
  // value sets both keys.
  std::string second_key = {};
  // The greatest number of values. If the option has no key, several values are
  // joined by spaces.
  int most_values = 1;
  bool value_is_optional = false;  // --resume [DIR]
  bool may_repeat = false;         // each use adds values
  bool may_be_empty = false;       // "" counts as not given
  bool is_required = false;        // the tool refuses to start without it
  // Used only between headroom's processes; not in the help.
  bool is_internal = false;
  bool is_byte_size = false;  // accepts "2GiB"
  // Files may write the text "1,2" as a list, and "a=1,b=2" as a mapping.
  bool takes_list = false;
  // The value defines the steps or their samples. A resumed run keeps it,
  // because the committed steps were made with it.
  bool defines_steps = false;
  // The value is part of the plan. If a resume gives none of these values, all
  // are restored from the run's plan; if it gives one, none is restored.
  bool of_plan = false;
  // Read when a run starts; has no effect on resume.
  bool of_start = false;
};

struct Option : OptionRules {
  // The destination of the value: a member of RunConfig or a variable of the
  // program. If empty, the command looks the value up itself.
  using Member =
      std::variant<std::monostate, bool RunConfig::*, int64_t RunConfig::*,
                   uint64_t RunConfig::*, double RunConfig::*,
                   std::string RunConfig::*, Precision RunConfig::*,
                   OptimizerKind RunConfig::*, plan::Backend RunConfig::*,
                   std::optional<plan::ParallelLayout> RunConfig::*,
                   double Hyperparameters::*, std::string Hyperparameters::*,
                   bool*, int*, int64_t*, double*, std::string*,
                   std::filesystem::path*>;

  // "--img", "--imgsz". Empty for a key that only --set and run.yaml accept,
  // and for an argument of the worker's command line without a flag.
  std::vector<std::string> names = {};
  std::string value_name = {};             // "N" in the help; "" for a switch
  std::vector<std::string> commands = {};  // commands that accept the flag
  std::string key = {};  // "global_batch_size", "hyp.lr0"; "" if no key
  Member member = {};
  // Sentences for the help: the meaning, the effect of a larger or smaller
  // value, and when to change the value.
  std::string advice = {};
  std::string group = {};  // the heading in the help
};

// An option as the help shows it: "--batch, --batch-size N", "--json",
// "RUN.YAML".
Option option(const std::string& form, std::vector<std::string> commands,
              std::string advice, OptionRules rules = {});

// The value name of options with one or two sizes in pixels.
inline constexpr char kPixelSize[] = "HEIGHT [WIDTH]";

// The values of --precision, in the order of its help.
inline constexpr auto kPrecisions =
    std::to_array<NamedValue<Precision>>({{Precision::kAuto, "auto"},
                                          {Precision::kFp32, "fp32"},
                                          {Precision::kBf16, "bf16"},
                                          {Precision::kFp16, "fp16"},
                                          {Precision::kFp64, "fp64"}});

// Parts of a list of options, each with the heading under which help shows it.
using OptionGroups = std::vector<std::pair<std::string, std::vector<Option>>>;
// Joins the parts in their order, and sets each option's group.
std::vector<Option> grouped(OptionGroups parts);

// The keys of a run, with or without a flag, in the order of the help; the
// hyper-parameters follow hyp_file.
const std::vector<Option>& run_options();

// All other options, in the order of the help: --config and --set, connections
// between processes, output, and tools.
const std::vector<Option>& command_options();

// The help's heading for --config and --set.
inline constexpr char kAnyKey[] = "Every key";

// Whether the option sets keys of a run.
inline bool is_of_run(const Option& option) {
  return !option.key.empty() || option.group == kAnyKey;
}

// Returns the option with this key, or nullptr.
const Option* find_key(const std::string& key);

// Returns the run option with this flag ("--img-size"), or nullptr.
const Option* find_flag(const std::string& name);

// Returns the option of `command` with this flag, a run option or not, or
// nullptr.
const Option* find_option(const std::string& command, const std::string& name);

bool belongs_to(const Option& option, const std::string& command);
// Whether users set this option to make one run differ from another: it has a
// flag or is a hyper-parameter, and does not name the run's folder.
bool distinguishes_runs(const Option& option);
inline bool is_switch(const Option& option) {
  return option.value_name.empty();
}

// A remedy that names the key probably meant by `key`. Recognises flags
// ("batch"), bare hyper-parameters ("lr0") and typing errors.
std::string key_suggestion(const std::string& key);

// "true or false", "a whole number", ...: for the help and for refusals.
std::string type_name(const Option& option);

// The name in tables of settings: the first flag without its dashes ("batch"),
// or the key if there is no flag ("hyp.lr0").
std::string table_name(const Option& option);

// The key, and its flag if spelled differently, for refusals:
// "global_batch_size (--batch)", "epochs".
std::string shown_name(const Option& option);

// The value as text, which set_from_text reads back exactly.
std::string value_text(const RunConfig& config, const Option& option);
std::string default_text(const Option& option);

// The advice, and the default if there is one: "... The default is 16 images."
std::string advice_with_default(const Option& option);

// Sets the option from `text`. Returns false if `text` has the wrong type or is
// not one of the choices; check_run_config checks the range. Throws Error for
// an invalid layout. If the option is bound to a variable, sets the variable
// and not `config`.
bool set_from_text(RunConfig& config, const Option& option,
                   const std::string& text);

// The option's value in `config`; 0 for texts.
double number_of(const RunConfig& config, const Option& option);

// Whether the value is quoted in YAML files.
bool is_text(const Option& option);

}  // namespace headroom::configs
