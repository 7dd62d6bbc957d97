// RunRequest: the run that a command line asks for, all open questions about
// its processes answered: how many agents with how many workers each, with how
// many threads, into which folder.
//
// Throws: Error (exit 2) with one line. Touches the file system only to look.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "deploy/cli/args/command_line.h"
#include "deploy/cli/process/dataset_query.h"
#include "deploy/cli/process/launcher_environment.h"
#include "parallel/planner/remedies.h"

namespace headroom::cli {

struct RunRequest {
  // What everybody gets. `processes` is the number of workers of all agents,
  // `threads` is set, `resume` is "" or an absolute folder, and paths of files
  // that exist are absolute.
  configs::RunConfig config;
  std::string run_directory;  // absolute
  int num_agents = 1;
  int workers_per_agent = 1;
  // Goes on under the plan of its run directory
  // (parallel/planner/saved_plan.h).
  bool saved_plan = false;
  // What the run computes on, "8 x NVIDIA H100, bf16"; where nodes of other
  // machines take part, config.device and its precision may still be automatic.
  std::string devices;
  std::vector<std::string> notes;  // lines to say to the user
  // What to change where no plan fits.
  planner::RemedyScope remedies;

  int expected_workers() const { return num_agents * workers_per_agent; }
};

// Workers of each of `num_agents` agents: as many as flags say, or the
// launcher, or as an agent has cards. A run that is resumed has those that it
// had, unless
// --processes is given.
int workers_per_agent(const configs::RunConfig& config, bool is_resumed,
                      bool processes_given, int num_agents, int cards_here,
                      const std::optional<LauncherPlace>& place);

// `line` is of train, val or plan, which needs no data set. `place` is this
// process's under a launcher; each of the launcher's processes becomes an
// agent. `cores` are those of this host. `ask` is asked for the labels that
// bytes depend on: under --memory-limit, for --batch -1, and by plan; without
// it they are not known. By the way it settles anchors where this process is
// the one that has to; else they are still to be asked for. Without `must_fit`
// a request that no plan fits is not refused here. `capability` is that of the
// GPUs that are planned for where they are not here; 0: nobody told.
RunRequest make_run_request(const CommandLine& line,
                            const std::optional<LauncherPlace>& place,
                            int cores, const AskData& ask = {},
                            bool must_fit = true,
                            std::optional<int> capability = {});

// The flags' configuration over that of the run in `run_directory`: everything
// is restored; of processes, layout, ZeRO stage, micro-batch and activations
// either all are or, when one is given, none (their old values may not fit the
// new one). `notes` gets a line for each value that changes.
configs::RunConfig resumed_config(const std::string& run_directory,
                                  const std::vector<configs::FlagUse>& uses,
                                  std::vector<std::string>& notes);

// The first line of a run, for people: what is about to be trained or judged.
//
// Errors: Error (exit 2) for a model that cannot be read and that the plan
// depends on.

// "96 x 96 (rounded up from 65 x 65)": the network's input. Without layers the
// largest stride is not known, and the size is as it was asked for.
std::string image_size_text(const configs::RunConfig& config,
                            const std::vector<layers::LayerCost>& layers);

std::string headline(const RunRequest& request);
// How large the model is, and when a checkpoint of a training comes.
std::string model_line(const RunRequest& request);

}  // namespace headroom::cli
