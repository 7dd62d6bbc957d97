// RankLadder: this rank's place on the memory ladder of its plan
// (worker/memory/memory_ladder.h has the rules), and how a step runs there: the
// activation policies of its layers and its micro-batches.
//
// Ownership: owns the runners of the layers. Threads: the training thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/plan.h"
#include "worker/data/loader/batch.h"
#include "worker/memory/memory_ladder.h"
#include "worker/model/layer_graph.h"
#include "worker/step/apply_plan.h"

namespace headroom::step {

class RankLadder {
 public:
  // `host_memory_limit`: most bytes to offload; 0 means no limit.
  // `may_offload`: layers may be offloaded although the plan does not offload
  // them. `can_cut`: micro-batches may become smaller than the plan's. `state`:
  // the steps taken before the workers connected again, under the same plan.
  RankLadder(const plan::Plan& plan, int data_parallel_rank,
             int64_t global_batch_size, const model::LayerGraph& model,
             int64_t host_memory_limit, bool may_offload, bool can_cut,
             const memory::LadderState& state);

  // --- how a step runs on this rung ---
  // Runs the layers; null if they are called directly.
  model::LayerExecutor* runner() const {
    return rungs_.runners[static_cast<size_t>(state_.policy)].get();
  }
  const std::vector<plan::ActivationPolicy>& policies() const {
    return rungs_.policies[static_cast<size_t>(state_.policy)];
  }
  // Whether micro-batches are smaller than the plan's.
  bool cuts_micro_batches() const { return state_.num_cuts > 0; }
  std::vector<plan::SampleRange> micro_batches_of(
      const loader::Batch& batch) const;
  // Whether micro-batches can be captured (plan::capture_error).
  bool allows_capture() const;

  // --- moves ---
  // Moves to the lowest rung of any rank. Returns the lowest rank that
  // has used up all settings that need less memory, if any. Collective.
  std::optional<int> agree(collectives::Communicator& world);
  memory::LadderDecision after_failure() {
    return moved(memory::after_failure(all_, state_));
  }
  memory::LadderDecision after_commit() {
    return moved(memory::after_commit(all_, state_));
  }

  const memory::LadderState& state() const { return state_; }
  void set_validation_parts(int64_t parts) { state_.validation_parts = parts; }

 private:
  memory::LadderDecision moved(memory::LadderDecision decision) {
    state_ = decision.state;
    return decision;
  }
  int64_t micro_batch_size() const;

  const plan::Plan plan_;
  const int data_parallel_rank_;
  const plan::BatchCut cut_;
  const int64_t stride_;  // the model's largest stride
  const ActivationRungs rungs_;
  const memory::LadderRungs all_;  // rungs_, then smaller micro-batches
  memory::LadderState state_;
};

}  // namespace headroom::step
