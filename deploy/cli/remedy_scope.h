// What a remedy may change of a run that was asked for on a command line, and
// the whole command with that change, or with another.
#pragma once

#include <string>
#include <vector>

#include "configs/run_config.h"
#include "deploy/cli/args/command_line.h"
#include "parallel/planner/remedies.h"

namespace headroom::cli {

// "headroom train --data …" as it was typed, with the remedy's flags in the
// place of those that it changes.
std::string command_with(const CommandLine& line,
                         const planner::Remedy& remedy);

// "headroom train --data …" as a shell reads it back.
std::string command_text(const CommandLine& line);

// Takes a flag and its values out of `words`.
void remove_flag(std::vector<std::string>& words, const std::string& spelling);

// The scope of remedies for a run that is started here, by `num_agents` agents.
// `shared_cores` of this host are divided among its processes; 0: --threads is
// given. Under a launcher the whole command is not known.
planner::RemedyScope remedy_scope(const CommandLine& line,
                                  const configs::RunConfig& config,
                                  bool has_launcher, int num_agents,
                                  int shared_cores);

}  // namespace headroom::cli
