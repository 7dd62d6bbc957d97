// RunRequest: the run that a command line asks for, with its number of agents,
// of workers per agent and of threads, and its folder.
//
// The functions throw Error (exit 2) with one line, and only read the file
// system.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "deploy/cli/args/command_line.h"
#include "deploy/cli/process/dataset_query.h"
#include "deploy/cli/process/launcher_environment.h"
#include "parallel/machine/machine_limits.h"
#include "parallel/planner/card_speed.h"
#include "parallel/planner/remedies.h"
#include "proto/reports.h"

namespace headroom::cli {

struct RunRequest {
  // The configuration that every process receives. `processes` is the number of
  // workers of all agents, `threads` is set, `resume` is "" or an absolute
  // folder, and the paths of existing files are absolute.
  configs::RunConfig config;
  std::string run_directory;  // absolute
  int num_agents = 1;
  int workers_per_agent = 1;
  // Whether the run continues with the plan of its run directory
  // (parallel/planner/saved_plan.h).
  bool saved_plan = false;
  // The devices that the run computes on: "8 x NVIDIA H100, bf16". If other
  // machines take part, config.device and its precision may still be automatic.
  std::string devices;
  // The slowest of these devices, for plans; unknown on the CPU, and if only
  // other machines' agents can say.
  planner::CardSpeed card;
  std::vector<std::string> notes;  // lines for the user
  // The settings that a remedy may change if no plan fits.
  planner::RemedyScope remedies;

  int expected_workers() const { return num_agents * workers_per_agent; }
};

// The number of workers of each of `num_agents` agents: from the flags, else
// from the launcher, else one per card. A resumed run keeps its number unless
// --processes is given.
int workers_per_agent(const configs::RunConfig& config, bool is_resumed,
                      bool processes_given, int num_agents, int cards_here,
                      const std::optional<LauncherPlace>& place);

// Determines everything about the run that `line` requests. `line` is a train,
// val or plan command; a plan needs no data set.
//
// `place` is this process's position under a launcher, whose processes each
// become an agent. `cores` is the number of cores of this host. `ask` reads the
// facts of the data set on which the memory depends: under --memory-limit, for
// --batch -1, and for plan. Without `ask` these facts stay unknown. The same
// call decides about the anchors if this process is responsible for them;
// otherwise the anchors stay undecided. If `must_fit` is false, a request for
// which no plan fits is not refused here. `elsewhere` describes planned GPUs
// that are not in this machine, as far as they are known. `machine` bounds the
// run (machine_share.h); by default nothing is known of it.
RunRequest make_run_request(const CommandLine& line,
                            const std::optional<LauncherPlace>& place,
                            int cores, const AskData& ask = {},
                            bool must_fit = true,
                            const std::optional<wire::NodeCard>& elsewhere = {},
                            const MachineLimits& machine = {});

// Whether the line has --resume.
bool resumes(const CommandLine& line);
// The request of `headroom coordinator --resume`: the run goes on from the
// folder on this machine. `workers`: of all agents; 0 means as many as before.
RunRequest resumed_request(const CommandLine& line, int workers);

// Applies the flags to the configuration of the run in `run_directory`. All
// values are restored, with one exception: if any of processes, layout, ZeRO
// stage, micro-batch and activations is given, none of these is restored, as
// the old values may not fit the new one. Adds a line to `notes` per change.
configs::RunConfig resumed_config(const std::string& run_directory,
                                  const std::vector<configs::FlagUse>& uses,
                                  std::vector<std::string>& notes);

// The size of the network's input: "96 x 96 (rounded up from 65 x 65)". Without
// layers the largest stride is unknown, and the requested size is returned.
std::string image_size_text(const configs::RunConfig& config,
                            const std::vector<layers::LayerCost>& layers);

// The first line of a run: what will be trained or validated. Throws Error
// (exit 2) if the plan depends on a model that cannot be read.
std::string headline(const RunRequest& request);
// The size of the model, and how often a training writes a checkpoint.
std::string model_line(const RunRequest& request);

}  // namespace headroom::cli
