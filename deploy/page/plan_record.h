// PlanRecord: a run's plan as JSON for the page, computed by the planner. Each
// part is computed from the run directory's files when it is first requested.
//
// Threads: one at a time.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom::page {

class PlanRecord {
 public:
  // `run_directory` is the folder with the recorded model; "" if there is none.
  PlanRecord(std::filesystem::path run_directory, configs::RunConfig config,
             plan::Plan plan);

  const plan::Plan& plan() const { return plan_; }
  // {"reason", "lines": the plan in words, "other_layouts": [{"layout",
  // "answer"}], "no_other_layouts": why there are none}.
  const nlohmann::ordered_json& words();
  // The memory of a rank's step: {"rank", "peak", "points": [{"phase", "layer",
  // "kept", "scratch"}]}, or "why_not" if it cannot be predicted here.
  // REQUIRES: 0 <= rank < world size of the plan.
  const nlohmann::ordered_json& timeline(int rank);

 private:
  std::vector<std::string> lines() const;
  // The model's layers. Throws Error if they cannot be read here, or do not
  // match the plan.
  const std::vector<layers::LayerCost>& layers();
  // For example "4 C3 (128)"; "" for -1.
  std::string layer_name(int64_t layer);

  std::filesystem::path run_directory_;
  configs::RunConfig config_;
  plan::Plan plan_;
  std::optional<std::vector<layers::LayerCost>> layers_;
  std::optional<nlohmann::ordered_json> words_;
  std::map<int, nlohmann::ordered_json> timelines_;
};

}  // namespace headroom::page
