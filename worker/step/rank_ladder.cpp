#include "worker/step/rank_ladder.h"

#include <ATen/ops/from_blob.h>

#include <utility>

namespace headroom::step {
namespace {

memory::LadderRungs ladder_rungs(const ActivationRungs& policies,
                                 const plan::BatchCut& cut, bool can_cut) {
  memory::LadderRungs rungs;
  rungs.policies = policies.names;
  rungs.skipped = policies.skipped;
  if (!can_cut) {
    rungs.micro_batch_error = "micro-batches of this source cannot be cut";
  } else if (const auto reason = plan::smaller_micro_batch_error(cut)) {
    rungs.micro_batch_error = *reason;
  } else {
    rungs.micro_batches = plan::smaller_micro_batches(cut);
  }
  return rungs;
}

}  // namespace

RankLadder::RankLadder(const plan::Plan& plan, int data_parallel_rank,
                       int64_t global_batch_size,
                       const model::LayerGraph& model,
                       int64_t host_memory_limit, bool may_offload,
                       bool can_cut, const memory::LadderState& state)
    : plan_(plan),
      data_parallel_rank_(data_parallel_rank),
      cut_{global_batch_size, plan.layout.data_parallel_size,
           plan.micro_batch_size, plan.batch_norm_rule()},
      stride_(model.max_stride()),
      rungs_(activation_rungs(plan, model.num_layers(), host_memory_limit,
                              may_offload)),
      all_(ladder_rungs(rungs_, cut_, can_cut)),
      state_(state) {}

int64_t RankLadder::micro_batch_size() const {
  return cuts_micro_batches()
             ? all_.micro_batches[static_cast<size_t>(state_.num_cuts) - 1]
             : cut_.micro_batch_size;
}

std::vector<plan::SampleRange> RankLadder::micro_batches_of(
    const loader::Batch& batch) const {
  if (!cuts_micro_batches()) return batch.micro_batches;
  return plan::part_in_smaller_micro_batches(
             cut_, batch.global_size,
             batch.image_height / stride_ * (batch.image_width / stride_),
             data_parallel_rank_, micro_batch_size())
      .micro_batches;
}

bool RankLadder::allows_capture() const {
  plan::Plan plan = plan_;
  plan.activation_policies = policies();
  plan::BatchCut cut = cut_;
  cut.micro_batch_size = micro_batch_size();
  return !plan::capture_error(plan, cut);
}

std::optional<int> RankLadder::agree(collectives::Communicator& world) {
  memory::SharedRungs rungs =
      memory::shared_rungs(state_, world.rank(), world.size());
  world.all_reduce(
      at::from_blob(rungs.data(), {static_cast<int64_t>(rungs.size())},
                    at::kLong),
      collectives::ReduceOp::kMax);
  const memory::AgreedRungs agreed =
      memory::take_over(rungs, state_, world.size());
  state_ = agreed.state;
  return agreed.exhausted_rank;
}

}  // namespace headroom::step
