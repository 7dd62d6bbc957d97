// PlanRecord: what the page says of a run's plan: its lines, the layouts that
// were not taken, and the memory of a step, part by part. It is worked out from
// the files of the run directory when it is first asked for.
//
// Threads: one at a time.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/other_layouts.h"
#include "parallel/predict/memory_model.h"

namespace headroom::page {

class PlanRecord {
 public:
  // `run_directory`: the folder with the run's recorded model; "" for none.
  PlanRecord(std::filesystem::path run_directory, configs::RunConfig config,
             plan::Plan plan);

  const plan::Plan& plan() const { return plan_; }
  // Lines for people.
  std::vector<std::string> lines() const;

  struct Others {
    std::vector<planner::OtherLayout> layouts;
    std::string why_not;  // the reason why there are none
  };
  const Others& others();

  struct Timeline {
    predict::StepTimeline step;
    std::string why_not;  // the reason why there is none; "" where there is one
  };
  // REQUIRES: 0 <= rank < plan().layout.world_size().
  const Timeline& timeline(int rank);
  // "4 C3 (128)"; "" for -1.
  std::string layer_name(int64_t layer);

 private:
  // The model's layers; empty, with the reason, where they cannot be read here
  // or are none that the plan could be of.
  const std::vector<layers::LayerCost>& layers();

  std::filesystem::path run_directory_;
  configs::RunConfig config_;
  plan::Plan plan_;
  std::optional<std::vector<layers::LayerCost>> layers_;
  std::string layers_error_;
  std::optional<Others> others_;
  std::map<int, Timeline> timelines_;
};

}  // namespace headroom::page
