// What `headroom plan` says: the plan that train would use, why, and what it
// comes to for each stage and each rank; for people, and as one JSON document.
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
  std::vector<planner::StageShare> stages;
  // The memory of each stage's ranks.
  std::vector<predict::MemoryEstimate> memory;
  // A rank's bytes if the pipeline were one stage.
  int64_t one_stage_bytes = 0;
  // The parts of a full batch that the first 256 data ranks compute.
  std::vector<plan::BatchPart> parts;
  std::vector<plan::SampleRange> groups;  // a full batch's groups
  std::vector<planner::OtherLayout> others;
  // Set if groups are smaller than usual.
  std::optional<std::string> groups_warning;
  std::string schedule;                  // drawn, if it was asked for
  std::optional<PlanSegments> segments;  // set for GPUs
  std::optional<PlanForecast> forecast;  // set where a speed is known
};

// Everything follows from the request. Throws Error (exit 2 or 3) when train
// would refuse it.
PlanReport make_plan_report(const configs::RunConfig& config, int world_size,
                            bool with_schedule,
                            const planner::RemedyScope& remedies = {});

// The items of a step's memory that are told apart for people.
struct MemoryParts {
  int64_t model_state = 0;  // weights, gradients, optimizer, averages
  int64_t rest = 0;         // targets and workspaces
};
MemoryParts memory_parts(const predict::MemoryEstimate& memory);

// What is assumed of data that is not there: the classes, the boxes.
std::string assumptions_text(const configs::RunConfig& config);

std::string plan_report_text(const PlanReport& report);
// What the batch-norm groups cost, a line each; "" where they cost nothing.
std::string groups_note(const PlanReport& report);
std::string schedule_text(const PlanReport& report);
std::string plan_report_json(const PlanReport& report);

}  // namespace headroom::cli
