// The part of RunState that answers a lack of the host's memory.
#include "coordinator/run/run_state.h"
#include "parallel/planner/replan.h"

namespace headroom::coordinator {

bool RunState::take_less_host_memory() {
  if (!cycle_.wanted_plan()) return false;
  const auto next = planner::plan_after_host_shortage(
      config_, *cycle_.wanted_plan(), options_.layers);
  if (!next) return false;
  config_.host_memory_limit = next->host_memory_limit;
  config_.memory_limit = next->memory_limit;
  settled_config_yaml_ = configs::to_yaml(config_);
  cycle_.want(next->plan);
  emit(EventKind::kHostMemory, -1, next->reason, /*warning=*/true);
  return true;
}

}  // namespace headroom::coordinator
