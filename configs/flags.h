// The flags of headroom train and headroom val, which follow from the table of
// knobs, and how they become a RunConfig.
#pragma once

#include <string>
#include <vector>

#include "configs/run_config.h"

namespace headroom::configs {

struct Flag {
  // What may follow the flag.
  enum class Values {
    kNone,  // a switch: sets its knob to true
    kOne,
    kOneOrTwo,  // --img S, --img HEIGHT WIDTH
    kOptional,  // --resume [DIR]
    kRow,       // --freeze 3, or as in YOLOv5 --freeze 0 1 2
  };

  std::vector<std::string> spellings = {};  // "--batch-size", "--batch"
  std::vector<std::string> keys = {};  // knobs it sets; none: --config, --set
  Values values = Values::kOne;
  std::string value_name = {};  // the help's "N" or "HEIGHT [WIDTH]"
  // Each use adds to the ones before; other flags are given once.
  bool may_repeat = false;
  bool in_train = true;
  bool in_val = true;
  bool in_coordinator = true;
  std::string group = {};  // the help's heading
  std::string description = {};
};

// All flags, in the order of the help.
const std::vector<Flag>& flags();

// nullptr when there is none of this spelling ("--img-size").
const Flag* find_flag(const std::string& spelling);

// One flag as it stood on the command line, or one word of --set.
struct FlagUse {
  std::string spelling;
  std::vector<std::string> values;
};

// The run that a command line asks for. Whatever their places, --config comes
// first and --hyp second; the rest, --set included, follow in the order given,
// so that later ones win. A hyp_file named in run.yaml lies below run.yaml's
// own hyp: entries. Throws Error with exit 2 for a value of the wrong type
// (naming the flag), an explicit --processes 0, and everything parse_run_config
// refuses. Call check_run_config on the result.
RunConfig run_config_from_flags(const std::string& command,
                                const std::vector<FlagUse>& uses);

// The same flags laid over `base`, the run that is resumed: they win over all
// of it, and its hyp_file is not read again. Throws Error if --config is among
// them: a resumed run has its own.
RunConfig overlay_flags(RunConfig base, const std::vector<FlagUse>& uses);

}  // namespace headroom::configs
