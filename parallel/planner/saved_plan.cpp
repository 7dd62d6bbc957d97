#include "parallel/planner/saved_plan.h"

#include <cstdint>
#include <filesystem>
#include <utility>

#include "configs/yaml/strict_yaml.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan_json.h"
#include "parallel/plan/plan_parts.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/requested_plan.h"

namespace headroom::planner {

std::string plan_match_error(const configs::RunConfig& config,
                             const plan::Plan& plan, int world_size,
                             size_t num_layers) {
  if (plan.layout.world_size() != world_size) {
    return cat(plan::to_string(plan.layout), " is for ",
               counted(plan.layout.world_size(), "process"), ", not for ",
               world_size);
  }
  if (const auto why =
          plan::groups_error(plan::batch_cut(plan, config.global_batch_size))) {
    return *why;
  }
  if (const auto why = plan::stage_begins_error(
          plan.stage_begins, plan.layout.pipeline_parallel_size)) {
    return *why;
  }
  if (num_layers == 0) return "";
  const bool has_all_layers =
      plan.stage_begins.back() < static_cast<int64_t>(num_layers) &&
      (plan.activation_policies.empty() ||
       plan.activation_policies.size() == num_layers);
  if (!has_all_layers) {
    return cat("it is for a model of another number of layers than ",
               num_layers);
  }
  return "";
}

namespace {

std::optional<plan::Plan> plan_of_run(const std::string& run_directory) {
  const std::string file = run_directory + "/" + run_files::kPlan;
  if (!std::filesystem::exists(file)) return std::nullopt;
  return plan::plan_from_json(yaml::read_config_file(file, "resume"), file);
}

}  // namespace

std::optional<plan::BatchNormRule> saved_batch_norm_rule(
    const std::string& run_directory) {
  const std::optional<plan::Plan> plan = plan_of_run(run_directory);
  if (!plan) return std::nullopt;
  return plan->batch_norm_rule();
}

SavedPlan read_saved_plan(const std::string& run_directory,
                          const configs::RunConfig& config, int world_size,
                          const std::vector<layers::LayerCost>& layers) {
  SavedPlan saved;
  const std::optional<plan::Plan> found = plan_of_run(run_directory);
  if (!found) return saved;
  plan::Plan plan = *found;
  plan.backend = backend_of(config);
  saved.plan_error = plan_match_error(config, plan, world_size, layers.size());
  if (!saved.plan_error.empty()) return saved;
  if (!layers.empty()) {  // the image size may have changed
    plan.predicted_peak_bytes =
        predicted_peak_bytes(predict::memory_request(config, plan, layers));
    const int64_t bytes = fullest_rank_bytes(plan);
    if (config.memory_limit > 0 && bytes > config.memory_limit) {
      saved.plan_error = "it needs " + format_bytes(bytes) + " of " +
                         format_bytes(config.memory_limit);
      return saved;
    }
  }
  saved.plan = std::move(plan);
  return saved;
}

}  // namespace headroom::planner
