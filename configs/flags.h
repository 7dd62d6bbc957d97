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

// Returns the run that a command line requests. --config is applied first and
// --hyp second, wherever they are; all other flags, including --set, follow in
// the given order, so that later flags win. In a run.yaml, its own hyp: entries
// win over its hyp_file. Throws Error with exit 2 for a value of the wrong type
// (naming the flag), an explicit --processes 0, and everything that
// parse_run_config refuses. Call check_run_config on the result.
RunConfig run_config_from_flags(const std::string& command,
                                const std::vector<FlagUse>& uses);

// Applies the flags to `base`, the configuration of a resumed run. Flags win
// over every value in `base`, whose hyp_file is not read again. Throws Error
// for --config, because a resumed run keeps its own run.yaml.
RunConfig overlay_flags(RunConfig base, const std::vector<FlagUse>& uses);

// Returns the flags of those `keys` whose values differ between `before` and
// `after`, with the values of `after`. A text that became empty is left out.
// REQUIRES: each key has a flag with a value.
std::vector<FlagUse> changed_flags(const RunConfig& before,
                                   const RunConfig& after,
                                   const std::vector<std::string>& keys);

// Throws Error (exit 2) unless `command`, the value of --augment-program in
// this process, is the config's: no file and no other machine starts a program.
void require_augment_program(const RunConfig& config,
                             const std::string& command);
// Gives a new run this program, and checks that a resumed run has it.
void take_augment_program(RunConfig& config, const std::string& command);

}  // namespace headroom::configs
