// The part of RunState that answers a lack of the host's memory.
#include "coordinator/run/run_state.h"
#include "parallel/planner/replan.h"

namespace headroom::coordinator {

bool RunState::take_less_host_memory(const Loss& loss) {
  std::optional<planner::HostReplan> next;
  if (cycle_.wanted_plan()) {
    next = planner::plan_after_host_shortage(config_, *cycle_.wanted_plan(),
                                             cycle_.model());
  }
  emit(EventKind::kHostMemory, loss.rank,
       "worker " + loss.worker_id + " on " + loss.hostname + " " + loss.how +
           (next ? ": in the next generation each worker takes less, " +
                       next->reason
                 : ", and nothing is left to be made smaller: use a smaller "
                   "--batch or --img, or give it more memory"),
       /*warning=*/true);
  if (!next) return false;
  config_.host_memory_limit = next->host_memory_limit;
  config_.memory_limit = next->memory_limit;
  config_.memory_limit_is_machines = next->memory_limit_is_machines;
  settled_config_yaml_ = configs::to_yaml(config_);
  cycle_.want(next->plan);
  return true;
}

}  // namespace headroom::coordinator
