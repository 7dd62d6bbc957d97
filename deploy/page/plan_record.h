// PlanRecord: a run's plan for the page: its lines, the layouts that were not
// chosen, and the memory of a step, part by part. Computed from the files of
// the run directory at the first call.
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
  // `run_directory` is the folder with the recorded model; "" if there is none.
  PlanRecord(std::filesystem::path run_directory, configs::RunConfig config,
             plan::Plan plan);

  const plan::Plan& plan() const { return plan_; }
  // Lines of text for people.
  std::vector<std::string> lines() const;

  struct Others {
    std::vector<planner::OtherLayout> layouts;
    std::string why_not;  // why there are none; "" if there are some
  };
  const Others& others();

  struct Timeline {
    predict::StepTimeline step;
    std::string why_not;  // why there is none; "" if there is one
  };
  // A rank's memory in a step. REQUIRES: 0 <= rank < world size of the plan.
  const Timeline& timeline(int rank);
  // For example "4 C3 (128)"; "" for -1.
  std::string layer_name(int64_t layer);

 private:
  // The model's layers. Empty, with layers_error_ set, if they cannot be read
  // here or do not match the plan.
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
