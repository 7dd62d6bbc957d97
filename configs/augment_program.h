// --augment-program: a program of the user that changes training samples
// (worker/data/augment/augment_program.h).
//
// It comes from the command line of this machine alone, so that no file that a
// user was given starts a program. The run's definition has only a record of it
// (RunConfig::augment_program), with which every worker compares its own.
#pragma once

#include <string>
#include <vector>

#include "configs/run_config.h"

namespace headroom::configs {

// The words of the command, separated by spaces.
std::vector<std::string> words_of_program(const std::string& command);

// The command, and the checksums of the files that its words name: "python3
// a.py (a.py 99aa06d3014798d8)"; "" without a command.
std::string record_of_program(const std::string& command);

// Sets the config's program to `command`, the value of --augment-program or "".
// Returns a note for the user, or "". Throws Error (exit 2) if the config has a
// record, from a file or --set, and there is no command, or if a resumed run
// began without a program.
std::string take_augment_program(RunConfig& config, const std::string& command);

// Throws Error (exit 2) unless `command`, this worker's, has the run's record.
void require_augment_program(const RunConfig& config,
                             const std::string& command);

// " --augment-program COMMAND" for a command line to type, or "".
std::string augment_program_flag(const RunConfig& config);

}  // namespace headroom::configs
