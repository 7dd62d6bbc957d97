// Builds a RunConfig from the flags of a command line.
#pragma once

#include <string>
#include <vector>

#include "configs/run_config.h"

namespace headroom::configs {

// One flag of a run as given on the command line, by its first spelling.
struct FlagUse {
  std::string spelling;
  std::vector<std::string> values;
};

// The run that a command line requests. --config is applied first and --hyp
// second, wherever they are; all others, including --set, follow in the given
// order, so that later ones win. In a run.yaml, its own hyp: entries win over
// its hyp_file. Throws Error with exit 2 for a value of the wrong type (naming
// the flag), an explicit --processes 0, and everything that parse_run_config
// refuses. Call check_run_config on the result.
RunConfig run_config_from_flags(const std::string& command,
                                const std::vector<FlagUse>& uses);

// Applies the flags to `base`, the run that is resumed: they win over all of
// it, and its hyp_file is not read again. Throws Error if --config is among
// them: a resumed run has its own.
RunConfig overlay_flags(RunConfig base, const std::vector<FlagUse>& uses);

// The flags of `keys` whose values differ, with the values of `after`. A text
// that became empty is left out. REQUIRES: each key has a flag with a value.
std::vector<FlagUse> changed_flags(const RunConfig& before,
                                   const RunConfig& after,
                                   const std::vector<std::string>& keys);

}  // namespace headroom::configs
