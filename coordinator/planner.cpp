#include "coordinator/planner.h"

#include <algorithm>

#include "parallel/plan/batch_split.h"
#include "parallel/plan/layout.h"

namespace headroom {
namespace {

PlanDecision refuse(const std::string& reason, const std::string& remedy) {
  PlanDecision decision;
  decision.reason = reason;
  decision.remedy = remedy;
  decision.exit_code = ExitCode::kRequest;
  return decision;
}

std::string number(int64_t value) { return std::to_string(value); }

}  // namespace

PlanDecision choose_plan(const RunConfig& config, int world_size) {
  HEADROOM_CHECK(world_size >= 1, "world_size " + number(world_size));
  Plan plan;
  if (config.layout.empty()) {
    plan.layout.data_parallel_size = world_size;
  } else {
    plan.layout = parse_layout(config.layout);
  }
  const ParallelLayout& layout = plan.layout;
  if (layout.pipeline_parallel_size != 1 || layout.spatial_parallel_size != 1) {
    return refuse("--layout " + config.layout +
                      ": this version splits over the data axis only",
                  "use --layout data=" + number(world_size));
  }
  if (layout.world_size() != world_size) {
    return refuse("--layout " + config.layout + " has " +
                      number(layout.world_size()) + " ranks but there are " +
                      number(world_size) + " workers",
                  "use --layout data=" + number(world_size) +
                      " or --processes " + number(layout.world_size()));
  }
  const int64_t batch = config.global_batch_size;
  const int data = layout.data_parallel_size;
  // Validation gives whole batches to ranks.
  const bool trains = config.command == "train";
  if (trains && batch < data) {
    return refuse("--batch " + number(batch) + " is smaller than the data " +
                      "axis of " + number(data) + " ranks",
                  "use --batch " + number(data) + " or more, or --processes " +
                      number(std::max<int64_t>(batch, 1)) + " or fewer");
  }

  const int64_t share = share_of(batch, data, 0).size();
  // Smaller ones need the short last batch of an epoch cut at whole groups.
  if (config.micro_batch_size > 0 && config.micro_batch_size != share) {
    return refuse("--micro-batch " + number(config.micro_batch_size) +
                      " is not a rank's share of " + number(share) +
                      " images (" + number(batch) + " / " + number(data) +
                      " ranks), and this version runs a share at once",
                  "leave it out; more --processes or a smaller --batch lower "
                  "memory");
  }
  if (trains && config.batch_norm_group_size > batch) {
    return refuse("--bn-group " + number(config.batch_norm_group_size) +
                      " is larger than the global batch of " + number(batch),
                  "use --bn-group " + number(batch) + " or fewer");
  }
  plan.micro_batch_size = share;
  plan.batch_norm_group_size = config.batch_norm_group_size > 0
                                   ? config.batch_norm_group_size
                                   : default_batch_norm_group_size(batch);

  if (config.backend == "auto" || config.backend == "gloo") {
    plan.backend = Backend::kGloo;
  } else if (config.backend == "mpi") {
    plan.backend = Backend::kMpi;
  } else {
    return refuse("there is no backend '" + config.backend + "'",
                  "use --backend auto, gloo or mpi");
  }

  plan.reason = (config.layout.empty() ? "chosen: " : "as asked: ") +
                number(batch) + " images over " + number(data) +
                (data == 1 ? " rank" : " ranks") + ", micro-batches of " +
                number(plan.micro_batch_size) + ", batch-norm groups of " +
                number(plan.batch_norm_group_size);
  PlanDecision decision;
  decision.reason = plan.reason;
  decision.plan = plan;
  return decision;
}

Plan plan_or_throw(const RunConfig& config, int world_size) {
  PlanDecision decision = choose_plan(config, world_size);
  if (!decision.plan) {
    throw Error("plan", decision.reason, decision.remedy, decision.exit_code);
  }
  return *decision.plan;
}

}  // namespace headroom
