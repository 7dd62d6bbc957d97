#include "worker/trainer.h"

#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "worker/parallelize.h"
#include "worker/stage_step.h"

namespace headroom {
namespace {

constexpr int64_t kItems = 3;  // box, obj, cls
constexpr int64_t kSquaredNorm = kItems;
constexpr int64_t kPeaks = kItems + 1;

// After an exception autograd's queue keeps nodes, and what they saved, until
// the thread's next backward.
void release_failed_graph() {
  const at::Tensor leaf = at::ones({1}).requires_grad_();
  leaf.add(0).backward();
}

}  // namespace

Trainer::Trainer(Options options, TrainingState& state, Mesh& mesh)
    : options_(std::move(options)),
      state_(state),
      mesh_(mesh),
      routes_(routes_of_stage(state.model(), options_.plan,
                              mesh.here.pipeline_stage)),
      rungs_(activation_rungs(options_.plan, state.model().num_rows(),
                              options_.host_memory_limit)),
      ladder_(static_cast<int>(rungs_.size())),
      faults_(options_.faults, mesh.world.rank()),
      context_(options_.plan, options_.schedule.global_batch_size,
               state.model().max_stride(), mesh, &options_.pass_lists,
               state.scalar_type(), /*runner=*/nullptr),
      executor_(*mesh.pipeline, PipelineSchedule::k1F1B, routes_,
                at::TensorOptions(state.scalar_type())),
      reports_(at::zeros({kPeaks + mesh.world.size()}, at::kDouble)) {
  run_rows_at(0);
}

void Trainer::run_rows_at(int rung) {
  context_.set_runner(
      state_.row_runner(rungs_[static_cast<size_t>(rung)].get()));
}

StepResult Trainer::train_step(const Batch& batch, bool stop_requested) {
  StepResult result;
  result.settings = settings_at(options_.schedule, batch.step, batch.epoch);
  for (;; ++result.attempt) {
    faults_.begin_attempt(batch.step);
    attempt_step(batch, stop_requested, result);
    const std::string fault = faults_.end_attempt();
    if (!fault.empty()) result.events.push_back({"fault", fault});
    if (result.verdict.outcome != Outcome::kOutOfMemory) break;
  }
  if (result.committed && ladder_.note_committed()) {
    run_rows_at(ladder_.rung());
    result.events.push_back(
        {"activations", "back to the plan's policy after " +
                            std::to_string(MemoryLadder::kCalmSteps) +
                            " calm steps"});
  }
  return result;
}

void Trainer::attempt_step(const Batch& batch, bool stop_requested,
                           StepResult& result) {
  // Forward and backward change nothing that lasts.
  const GlobalCounts counts = count_matches(batch);
  Outcome outcome = forward_and_backward(batch, counts, result);

  // The vote: from here on all ranks agree.
  mesh_.world.all_reduce(reports_);
  const double* reports = reports_.const_data_ptr<double>();
  result.gradient_norm = std::sqrt(reports[kSquaredNorm]);
  if (outcome == Outcome::kOk && !std::isfinite(result.gradient_norm)) {
    outcome = Outcome::kNonFinite;
  }
  result.verdict =
      cast_vote(mesh_.world, {outcome, stop_requested, mesh_.world.rank()});

  // The commit.
  if (result.verdict.outcome == Outcome::kOk) {
    CommitArguments commit;
    commit.step = batch.step;
    commit.num_groups = context_.num_groups();
    commit.gradient_norm = result.gradient_norm;
    commit.settings = result.settings;
    commit.weight_decay = weight_decay(options_.schedule);
    result.optimizer_stepped = state_.commit(commit);
    result.committed = true;
  } else if (result.verdict.outcome == Outcome::kNonFinite &&
             options_.skip_non_finite) {
    state_.commit_without_update(batch.step);
    result.committed = true;
  }

  // --------------------------- diagnostics from here on ---------------------
  result.box = reports[0];
  result.obj = reports[1];
  result.cls = reports[2];
  result.loss = (result.box + result.obj + result.cls) *
                static_cast<double>(batch.global_size);
  result.measured_peak_bytes.clear();
  for (int rank = 0; rank < mesh_.world.size(); ++rank) {
    result.measured_peak_bytes.push_back(
        static_cast<int64_t>(reports[kPeaks + rank]));
  }
}

// Matches per level over the whole global batch: known from labels alone. Ranks
// that share an image count the same ones.
GlobalCounts Trainer::count_matches(const Batch& batch) {
  GlobalCounts counts{batch.global_size, {}};
  if (!mesh_.is_last_stage()) return counts;
  const auto levels = static_cast<int64_t>(state_.model().levels().size());
  at::Tensor matches = at::zeros({levels}, at::kLong);
  int64_t* sums = matches.data_ptr<int64_t>();
  for (const std::vector<LevelTargets>& micro_batch : batch.targets) {
    for (int64_t level = 0; level < levels; ++level) {
      sums[level] += micro_batch[level].size();
    }
  }
  mesh_.data->all_reduce(matches);
  counts.matches.assign(sums, sums + levels);
  return counts;
}

Outcome Trainer::forward_and_backward(const Batch& batch,
                                      const GlobalCounts& counts,
                                      StepResult& result) {
  CountingAllocator::instance().reset_peak();
  state_.gradients().begin_step();
  state_.batch_norm_sums().zero_();
  reports_.zero_();
  StageStep step(
      {batch, counts, options_.gains, routes_, mesh_, context_, state_});
  std::string failure;
  try {
    executor_.run(static_cast<int64_t>(batch.micro_batches.size()), step);
  } catch (const c10::OutOfMemoryError& error) {
    // The executor has completed the passes. Where ZeRO's collectives and
    // exchanges interleave in them it cannot: only leaving frees the peers, and
    // the run ends at the committed step.
    if (!step.can_complete()) throw;
    failure = error.what_without_backtrace();
  }
  double* reports = reports_.data_ptr<double>();
  reports[kPeaks + mesh_.world.rank()] =
      static_cast<double>(CountingAllocator::instance().peak_bytes());
  if (!failure.empty()) {
    release_failed_graph();
    state_.gradients().complete_with_zeros({&state_.batch_norm_sums(), 1});
    return make_room(failure, result);
  }
  state_.gradients().finish({&state_.batch_norm_sums(), 1});
  for (int64_t item = 0; item < kItems; ++item) {
    reports[item] = step.items()[static_cast<size_t>(item)];
  }
  reports[kSquaredNorm] = state_.squared_norm_share();
  return step.is_finite() && !faults_.is_not_a_number() ? Outcome::kOk
                                                        : Outcome::kNonFinite;
}

Outcome Trainer::make_room(const std::string& failure, StepResult& result) {
  const int before = ladder_.rung();
  const bool can_go_on = ladder_.climb();
  if (ladder_.rung() != before) run_rows_at(ladder_.rung());
  const std::string answer = !can_go_on ? "nothing leaner is left"
                             : ladder_.rung() == before
                                 ? "the step is tried again"
                                 : "rows are recomputed from now on";
  result.events.push_back({"out_of_memory", failure + "; " + answer});
  return can_go_on ? Outcome::kOutOfMemory : Outcome::kMemoryExhausted;
}

}  // namespace headroom
