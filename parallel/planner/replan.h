// Chooses the plan with which a run continues when its number of workers
// changes (plan_for_workers), or after a worker ran out of memory with its
// leanest activations (plan_after_shortage), or a worker was killed because the
// host's memory ran out (plan_after_host_shortage). After a shortage:
//
//   needed   predicted bytes of the failed plan's fullest rank at its leanest,
//            the last step of the memory ladder (worker/memory/memory_ladder.h)
//   bound    `needed` minus 5 %, or minus the bytes that were lacking if these
//            are more; at most the room that the ranks have, if known
//   next     the planner's choice within this bound
//
// So every plan needs less than the one before, and a sequence of plans ends. A
// requested layout or ZeRO stage is kept (--zero 0 does not count as
// requested). Batch-norm groups are always kept, because they are part of the
// mathematics. Activations and micro-batches, which the ladder has changed
// already, are chosen again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/base/memory_shortfall.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/card_speed.h"

namespace headroom::planner {

// A step that ran out of memory when no setting that needs less memory was
// left.
struct MemoryShortage {
  int64_t step = 0;
  int rank = 0;
  MemoryShortfall memory;  // room_bytes: the smallest of any rank
};

// The shortage as text: "step 3, rank 1: out of memory with the leanest
// activations: asked for 2 MiB, 1 MiB of the 100 MiB of --memory-limit free".
std::string describe(const MemoryShortage& shortage);

// Bytes of the fullest rank in a step, with the leanest settings that the
// memory ladder can reach for the plan. REQUIRES: layers; a plan that the
// planner accepted for `config`.
int64_t leanest_bytes(const configs::RunConfig& config, const plan::Plan& plan,
                      const std::vector<layers::LayerCost>& layers);

struct Replan {
  std::optional<plan::Plan> plan;
  // Why this plan was chosen, or why there is no plan, with the needed and the
  // available bytes.
  std::string reason;
  // The flags with which --resume can continue after a refusal; "" if no flags
  // help.
  std::string resume_flags;
};

// `model` has no layers if it could not be read: then the result has no plan.
Replan plan_after_shortage(const configs::RunConfig& config,
                           const plan::Plan& failed,
                           const MemoryShortage& shortage,
                           const ModelOnCard& model);

// How a run continues after the kernel killed a worker because the host's
// memory ran out. The loaders get a quarter of their possible memory, but at
// least the memory for one batch of each loader. On the CPU, the tensors of the
// next plan take at most three quarters of the failed plan's bytes, or the
// fewest bytes that a plan can have. It offloads only if the failed plan does.
struct HostReplan {
  // For each worker, as in configs::RunConfig.
  int64_t host_memory_limit = 0;
  int64_t memory_limit = 0;
  bool memory_limit_is_machines = false;
  plan::Plan plan;
  // "for its loaders 64 MiB instead of 256 MiB, and for its tensors 71 MiB
  // instead of 95 MiB"
  std::string reason;
};

// No value if nothing can become smaller, or the model could not be read.
std::optional<HostReplan> plan_after_host_shortage(
    const configs::RunConfig& config, const plan::Plan& failed,
    const ModelOnCard& model);

struct ElasticPlan {
  std::optional<plan::Plan> plan;
  std::string reason;  // why this plan was chosen, or the last refusal
};

// The plan for the present number of workers. `wanted` is the plan for the
// complete number of workers; it is used again when all of them are back.
//
//   more     `wanted` if --layout is given, else a plan for all workers
//   fewer    a plan for the largest possible number of workers, even if
//            --layout is given
//
// The global batch and the batch-norm groups are kept: they are the run's
// mathematics. ZeRO stage, micro-batches and policies are kept if requested.
// REQUIRES: workers >= 1.
ElasticPlan plan_for_workers(const configs::RunConfig& config,
                             const plan::Plan& wanted, int workers,
                             const ModelOnCard& model);

}  // namespace headroom::planner
