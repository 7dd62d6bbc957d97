// The one table of knobs: every member of RunConfig with its key, type, unit,
// range, flag and a paragraph of description.
//
// Reading YAML, writing it, --set, the flags (configs/flags.h), the refusals of
// out-of-range values, the command line's help and the reference page all
// follow from it, so a new knob is a member of RunConfig and an entry here.
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "configs/run_config.h"
#include "parallel/base/named_values.h"

namespace headroom::configs {

// How a knob is set on the command line.
struct KnobFlag {
  enum class Commands { kTrain, kVal, kTrainAndVal };
  std::vector<std::string> spellings = {};  // "--batch"; none: --set alone
  std::string value_name = {};              // "N" in the help; "" for a switch
  Commands commands = Commands::kTrain;
  // Another knob, which a second value sets, or else the first sets, too.
  std::string second_key = {};
  bool value_is_optional = false;
  bool takes_row = false;  // also 0 1 2 ... for their number
  // Whether headroom coordinator takes it too, where train does; its workers
  // are counted by --expected-workers.
  bool in_coordinator = true;
  // The help lists it behind this knob's flag; "": in the table's order, which
  // is that of run.yaml.
  std::string listed_behind = {};
};

// What may be left out of a knob's declaration.
struct KnobRules {
  static constexpr double kUnbounded = std::numeric_limits<double>::infinity();

  std::string unit = {};     // "images", "pixels", "bytes", ... or ""
  double low = -kUnbounded;  // numbers outside [low, high] are refused
  double high = kUnbounded;
  std::vector<std::string> choices = {};  // words it may be; empty: any text
  // YOLOv5's choices that are none here, each with what to do instead.
  std::vector<std::pair<std::string, std::string>> absent_choices = {};
  bool is_byte_size = false;  // accepts "2GiB"
  // It says what a step is or which samples it uses. A resumed run keeps it:
  // the committed steps were made with it.
  bool defines_steps = false;
  // It is a part of the plan, all of which a resumed run restores, or none.
  bool of_plan = false;
  // It is settled when a run starts, and asked for in vain when one resumes.
  bool of_start = false;
  KnobFlag flag = {};
};

// The words of --precision, in the order of its help.
inline constexpr auto kPrecisions =
    std::to_array<NamedValue<Precision>>({{Precision::kAuto, "auto"},
                                          {Precision::kFp32, "fp32"},
                                          {Precision::kBf16, "bf16"},
                                          {Precision::kFp16, "fp16"},
                                          {Precision::kFp64, "fp64"}});

struct Knob : KnobRules {
  using Member =
      std::variant<bool RunConfig::*, int64_t RunConfig::*,
                   uint64_t RunConfig::*, double RunConfig::*,
                   std::string RunConfig::*, Precision RunConfig::*,
                   OptimizerKind RunConfig::*, plan::Backend RunConfig::*,
                   std::optional<plan::ParallelLayout> RunConfig::*,
                   double Hyperparameters::*>;
  std::string key;  // "global_batch_size"; hyper-parameters: "hyp.lr0"
  Member member;
  std::string description;  // sentences, for the help
  std::string group = {};   // the help's heading for its flag
};

inline Knob knob(std::string key, Knob::Member member, std::string description,
                 KnobRules rules = {}) {
  return {std::move(rules), std::move(key), member, std::move(description)};
}

// All knobs in the order of RunConfig; hyper-parameters after hyp_file.
const std::vector<Knob>& knobs();
std::vector<Knob> hyperparameter_knobs();  // the part under "hyp."
const std::vector<std::string>& knob_keys();

// nullptr when there is no such key.
const Knob* find_knob(const std::string& key);

// A remedy that names the key that somebody who wrote `key` probably meant.
// Knows flags ("batch"), bare hyper-parameters ("lr0") and typing errors.
std::string key_suggestion(const std::string& key);

// "true or false", "a whole number", ...: for the help and for refusals.
std::string type_name(const Knob& knob);

// The key, and the flag where it is spelled otherwise, as refusals show them:
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
