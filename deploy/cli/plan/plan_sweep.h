// headroom plan --sweep: a table of models, image sizes and batches that shows
// which of them fit, and what they take.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "deploy/cli/args/command_line.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/card_speed.h"

namespace headroom::cli {

struct Sweep {
  std::vector<std::string> models;   // values of the axis "cfg"
  std::vector<int64_t> image_sizes;  // values of the axis "img"
  std::vector<int64_t> batches;      // values of the axis "batch"
};

// Parses "cfg=yolov5n,yolov8n img=416,640 batch=8..64": lists, or a range whose
// values double. An axis that is not named has the request's value. Throws
// Error (exit 2).
Sweep parse_sweep(const std::string& text, const configs::RunConfig& config);

// Refuses flags that a sweep would have to ignore: a flag of an axis that the
// sweep names, --batch -1, --show. Throws Error (exit 2).
void check_beside_sweep(const CommandLine& line);

struct SweepCell {
  std::string model;
  int64_t parameters = 0;
  int64_t image_size = 0;
  int64_t batch = 0;
  bool fits = false;
  // This and the next four members are set only if the run fits.
  std::string policy;
  int64_t micro_batch = 0;
  int zero_stage = 0;
  int64_t predicted_peak_bytes = 0;
  // No value if the speed of the card is unknown.
  std::optional<double> step_seconds;
  // The sizes of the batch-norm groups if they are smaller than usual, else "".
  std::string smaller_groups;
  std::string refusal;
};

// The time of a step of the plan, if it is known.
using StepSeconds = std::function<std::optional<double>(
    const configs::RunConfig&, const plan::Plan&,
    const std::vector<layers::LayerCost>&)>;

std::vector<SweepCell> sweep_plans(const configs::RunConfig& config,
                                   int world_size, const Sweep& sweep,
                                   const planner::CardSpeed& card = {},
                                   const StepSeconds& step_seconds = {});

std::string sweep_text(const std::vector<SweepCell>& cells);
std::string sweep_json(const std::vector<SweepCell>& cells);

}  // namespace headroom::cli
