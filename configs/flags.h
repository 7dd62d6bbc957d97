// How the options of a run that were given on a command line become a
// RunConfig.
#pragma once

#include <string>
#include <vector>

#include "configs/run_config.h"

namespace headroom::configs {

// One flag of a run as it stood on the command line, by its first spelling.
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

// The flags of `keys` whose values differ, with those of `after`. A text that
// became empty has none. REQUIRES: each key has a flag that takes a value.
std::vector<FlagUse> changed_flags(const RunConfig& before,
                                   const RunConfig& after,
                                   const std::vector<std::string>& keys);

}  // namespace headroom::configs
