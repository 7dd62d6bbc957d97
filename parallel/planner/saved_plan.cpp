#include "parallel/planner/saved_plan.h"

#include <filesystem>
#include <utility>

#include "configs/yaml/strict_yaml.h"
#include "parallel/base/units.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/plan_match.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {

SavedPlan read_saved_plan(const std::string& run_directory,
                          const configs::RunConfig& config, int world_size,
                          const std::vector<layers::LayerCost>& layers) {
  const std::string file = run_directory + "/plan.json";
  SavedPlan saved;
  if (!std::filesystem::exists(file)) return saved;
  plan::Plan plan =
      plan::plan_from_json(yaml::read_config_file(file, "resume"), file);
  plan.backend = backend_of(config);
  saved.plan_error = plan_match_error(config, plan, world_size, layers.size());
  if (!saved.plan_error.empty()) return saved;
  if (!layers.empty()) {  // the images may have another size by now
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
