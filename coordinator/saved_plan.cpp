#include "coordinator/saved_plan.h"

#include <filesystem>

#include "configs/strict_yaml.h"
#include "coordinator/plan_memory.h"
#include "coordinator/stage_cut.h"
#include "parallel/base/units.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/stage_begins.h"
#include "proto/plan_json.h"

namespace headroom {
namespace {

std::string why_not(const RunConfig& config, const Plan& plan, int world_size,
                    const std::vector<RowCost>& rows) {
  if (plan.layout.world_size() != world_size) {
    return to_string(plan.layout) + " is for " +
           std::to_string(plan.layout.world_size()) +
           " processes, and there are " + std::to_string(world_size);
  }
  if (const auto why = why_groups_do_not_fit(batch_cut(config, plan))) {
    return *why;
  }
  if (const auto why = why_not_stages(plan.stage_begins,
                                      plan.layout.pipeline_parallel_size)) {
    return *why;
  }
  if (rows.empty()) return "";
  const auto num_rows = static_cast<int64_t>(rows.size());
  const bool has_all_rows =
      plan.stage_begins.back() < num_rows &&
      (plan.activation_policies.empty() ||
       static_cast<int64_t>(plan.activation_policies.size()) == num_rows);
  if (!has_all_rows) {
    return "it is for a model of another number of rows than " +
           std::to_string(num_rows);
  }
  return "";
}

}  // namespace

SavedPlan read_saved_plan(const std::string& run_directory,
                          const RunConfig& config, int world_size,
                          const std::vector<RowCost>& rows) {
  const std::string file = run_directory + "/plan.json";
  SavedPlan saved;
  if (!std::filesystem::exists(file)) return saved;
  Plan plan = plan_from_json(read_config_file(file, "resume"), file);
  plan.backend = config.backend == "mpi" ? Backend::kMpi : Backend::kGloo;
  saved.why_not = why_not(config, plan, world_size, rows);
  if (!saved.why_not.empty()) return saved;
  if (!rows.empty()) {  // the images may have another size by now
    plan.predicted_peak_bytes =
        predicted_peak_bytes(memory_request(config, plan, rows));
    const int64_t bytes = fullest_rank_bytes(plan);
    if (config.memory_limit > 0 && bytes > config.memory_limit) {
      saved.why_not = "it needs " + format_bytes(bytes) + " of " +
                      format_bytes(config.memory_limit);
      return saved;
    }
  }
  saved.plan = std::move(plan);
  return saved;
}

}  // namespace headroom
