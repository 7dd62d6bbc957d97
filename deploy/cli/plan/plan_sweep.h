// headroom plan --sweep: a table of image sizes and batches that shows which of
// them fit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "deploy/cli/args/command_line.h"
#include "parallel/planner/card_speed.h"

namespace headroom::cli {

struct Sweep {
  std::vector<int64_t> image_sizes;  // values of the axis "img"
  std::vector<int64_t> batches;      // values of the axis "batch"
};

// Parses "img=416,640 batch=8..64": lists, or a range whose values double. An
// axis that is not named has the request's value. Throws Error (exit 2).
Sweep parse_sweep(const std::string& text, const configs::RunConfig& config);

// Refuses flags that a sweep would have to ignore: a flag of an axis that the
// sweep names, --batch -1, --show. Throws Error (exit 2).
void check_beside_sweep(const CommandLine& line);

struct SweepCell {
  int64_t image_size = 0;
  int64_t batch = 0;
  bool fits = false;
  // This and the next three members are set only if the run fits.
  std::string policy;
  int64_t micro_batch = 0;
  int zero_stage = 0;
  int64_t predicted_peak_bytes = 0;
  // The sizes of the batch-norm groups if they are smaller than usual, else "".
  std::string smaller_groups;
  std::string refusal;
};

std::vector<SweepCell> sweep_plans(const configs::RunConfig& config,
                                   int world_size, const Sweep& sweep,
                                   const planner::CardSpeed& card = {});

std::string sweep_text(const std::vector<SweepCell>& cells);
std::string sweep_json(const std::vector<SweepCell>& cells);

}  // namespace headroom::cli
