// The full report of `headroom plan`: the plan that train would use, the
// reason, and its bytes per stage and rank; as text, and as one JSON document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "deploy/cli/plan/plan_forecast.h"
#include "deploy/cli/plan/plan_segments.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/other_layouts.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/stage_cut.h"
#include "parallel/predict/memory_model.h"

namespace headroom::cli {

struct PlanReport {
  configs::RunConfig config;
  std::string model;  // "yolov5s"
  plan::Plan plan;
  std::vector<layers::LayerCost> layers;
  planner::CardSpeed card;  // unknown on the CPU
  std::vector<planner::StageShare> stages;
  // The memory estimate of each stage's ranks.
  std::vector<predict::MemoryEstimate> memory;
  // The bytes of a rank if the pipeline had one stage.
  int64_t one_stage_bytes = 0;
  // The parts of a full batch for the first 256 data ranks.
  std::vector<plan::BatchPart> parts;
  std::vector<plan::SampleRange> groups;  // batch-norm groups of a full batch
  std::vector<planner::OtherLayout> others;
  // Set if groups are smaller than usual.
  std::optional<std::string> groups_warning;
  std::string schedule;                  // the drawing, if --show asked for it
  std::optional<PlanSegments> segments;  // only for GPUs
  std::optional<PlanForecast> forecast;  // only for a known speed
  std::optional<PlanRun> run;            // only for known images, too
  std::string unusable;  // why the planned cards cannot train; "" if they can
};

// Throws Error (exit 2 or 3) if train would refuse the request. `card`: without
// measurements, which are added.
PlanReport make_plan_report(const configs::RunConfig& config, int world_size,
                            bool with_schedule,
                            const planner::RemedyScope& remedies = {},
                            const planner::CardSpeed& card = {});

// Two items of a step's memory that the tables show as sums.
struct MemoryParts {
  int64_t model_state = 0;  // weights, gradients, optimizer, averages
  int64_t rest = 0;         // targets and workspaces
};
MemoryParts memory_parts(const predict::MemoryEstimate& memory);

// Lines about the numbers of classes and boxes: of the data set, or assumed.
std::string assumptions_text(const configs::RunConfig& config);

std::string plan_report_text(const PlanReport& report);
// The cost of the batch-norm groups, one line each; "" if there is none.
std::string groups_note(const PlanReport& report);
std::string schedule_text(const PlanReport& report);
std::string plan_report_json(const PlanReport& report);

}  // namespace headroom::cli
