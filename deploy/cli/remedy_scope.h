// Defines which settings of a requested run a remedy may change, and prints the
// whole command with that change.
#pragma once

#include <string>
#include <vector>

#include "configs/run_config.h"
#include "deploy/cli/args/command_line.h"
#include "parallel/planner/remedies.h"

namespace headroom::cli {

// The command "headroom train --data …" as it was typed, with the remedy's
// flags in place of the flags that they change.
std::string command_with(const CommandLine& line,
                         const planner::Remedy& remedy);

// The command "headroom train --data …", quoted so that a shell reads it back.
std::string command_text(const CommandLine& line);

// Removes a flag and its values from `words`.
void remove_flag(std::vector<std::string>& words, const std::string& spelling);

// The scope of remedies for a run of `num_agents` agents that is started here.
// This machine has `cores` cores. Under a launcher neither the cores of all
// machines nor the whole command are known, so only flags are advised.
// REQUIRES: config.threads is still 0 if --threads is not given.
planner::RemedyScope remedy_scope(const CommandLine& line,
                                  const configs::RunConfig& config,
                                  bool has_launcher, int num_agents, int cores);

}  // namespace headroom::cli
