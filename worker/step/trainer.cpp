#include "worker/step/trainer.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/step_phase.h"
#include "parallel/base/text.h"
#include "parallel/plan/plan.h"
#include "worker/kernels/cpu/heap.h"

namespace headroom::step {
namespace {

constexpr int64_t kItems = 3;  // box, obj, cls

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

Trainer::Trainer(Options options, TrainingState& state, collectives::Mesh& mesh)
    : options_(std::move(options)),
      state_(state),
      mesh_(mesh),
      routes_(routes_of_stage(state.model(), options_.plan,
                              mesh.here.pipeline_stage)),
      cut_{options_.schedule.global_batch_size,
           options_.plan.layout.data_parallel_size,
           options_.plan.micro_batch_size, options_.plan.batch_norm_rule()},
      policies_(activation_rungs(options_.plan, state.model().num_layers(),
                                 options_.host_memory_limit)),
      rungs_(ladder_rungs(policies_, cut_, options_.assign != nullptr)),
      ladder_(options_.ladder),
      context_(options_.plan, options_.schedule.global_batch_size,
               state.model().max_stride(), mesh, /*runner=*/nullptr),
      images_(state.device(), options_.following),
      executor_(*mesh.pipeline, pipeline::PipelineSchedule::k1F1B, routes_,
                state.map_options()),
      reports_(mesh.world.rank(), mesh.world.size(),
               static_cast<int64_t>(state.model().levels().size())),
      items_(at::zeros({kItems}, state.device().options(at::kDouble))),
      matches_(at::zeros({static_cast<int64_t>(state.model().levels().size())},
                         at::kLong)) {
  if (options_.memory) {
    prediction_.emplace(*options_.memory, mesh, state.model());
  }
  if (options_.captures_micro_batches) {
    captured_ = std::make_unique<CudaGraphRunner>(state.device());
  }
  run_layers_by_policy();
}

void Trainer::release_graphs() {
  if (captured_) captured_->release();
}

// The runner that captures, where the present policies and micro-batches can be
// captured.
CudaGraphRunner* Trainer::micro_batch_runner() const {
  plan::Plan plan = options_.plan;
  plan.activation_policies =
      policies_.policies[static_cast<size_t>(ladder_.policy)];
  plan::BatchCut cut = cut_;
  if (ladder_.num_cuts > 0) {
    cut.micro_batch_size =
        rungs_.micro_batches[static_cast<size_t>(ladder_.num_cuts) - 1];
  }
  return plan::capture_error(plan, cut) ? nullptr : captured_.get();
}

void Trainer::run_layers_by_policy() {
  release_graphs();
  context_.set_runner(state_.layer_executor(
      policies_.runners[static_cast<size_t>(ladder_.policy)].get()));
}

std::optional<int> Trainer::begin_generation() {
  make_room();
  // Ranks may differ in what they had exchanged of the next step.
  counts_ = counts_ahead_ = {};
  const int rank = mesh_.world.rank(), size = mesh_.world.size();
  memory::SharedRungs rungs = memory::shared_rungs(ladder_, rank, size);
  mesh_.world.all_reduce(
      at::from_blob(rungs.data(), {static_cast<int64_t>(rungs.size())},
                    at::kLong),
      collectives::ReduceOp::kMax);
  const memory::AgreedRungs agreed = memory::take_over(rungs, ladder_, size);
  ladder_ = agreed.state;
  run_layers_by_policy();
  return agreed.exhausted_rank;
}

void Trainer::make_room() {
  state_.abandon_step();
  release_graphs();
  kernels::release_freed_memory();
  state_.device().memory().release_caches();
}

StepResult Trainer::train_step(const loader::Batch& batch,
                               const AskForRequests& requests) {
  StepResult result;
  result.settings =
      optim::settings_at(options_.schedule, batch.step, batch.epoch);
  if (scales_loss()) result.loss_scale = state_.counters.loss_scale.value;
  for (; !attempt_step(batch, requests, result); ++result.attempt) {
    if (mesh_.world.size() > 1 || begin_generation()) return result;
  }
  if (result.committed) note_commit(result);
  return result;
}

bool Trainer::attempt_step(const loader::Batch& batch,
                           const AskForRequests& requests, StepResult& result) {
  // Forward and backward change nothing that lasts.
  result.out_of_memory.clear();
  begin_fault(configs::Fault::Phase::kStep, batch.step);
  const loss::GlobalCounts counts = count_matches(batch);
  const std::optional<data_parallel::Outcome> outcome =
      forward_and_backward(batch, counts, result);
  end_fault(result);
  if (!outcome) return false;

  // The vote: from here on all ranks agree.
  begin_fault(configs::Fault::Phase::kVote, batch.step);
  result.verdict = vote(batch, *outcome, requests, result);
  end_fault(result);

  // The commit.
  begin_fault(configs::Fault::Phase::kCommit, batch.step);
  commit(batch, result);
  end_fault(result);

  // --------------------------- diagnostics from here on ---------------------
  using Bytes = StepReports::Bytes;
  const StepReports::Losses losses = reports_.losses();
  result.box = losses.box;
  result.obj = losses.obj;
  result.cls = losses.cls;
  result.loss = losses.sum() * static_cast<double>(batch.global_size);
  result.measured_peak_bytes =
      reports_.bytes_of_all_ranks(Bytes::kMeasuredPeak);
  result.live_bytes = reports_.bytes_of_all_ranks(Bytes::kLive);
  result.predicted_peak_bytes =
      reports_.bytes_of_all_ranks(Bytes::kPredictedPeak);
  return true;
}

int64_t Trainer::predict_memory(const loader::Batch& batch) {
  if (!prediction_ || ladder_.num_cuts > 0) return 0;
  return prediction_->predict(
      batch, policies_.policies[static_cast<size_t>(ladder_.policy)]);
}

data_parallel::Verdict Trainer::vote(const loader::Batch& batch,
                                     data_parallel::Outcome outcome,
                                     const AskForRequests& requests,
                                     StepResult& result) {
  const Requests asked = requests ? requests() : Requests{};
  begin_step_phase(StepPhase::kVote);
  reports_.set_ballot({outcome, asked.stop, mesh_.world.rank(), asked.leave,
                       asked.save, asked.checkpoint});
  if (const loader::Batch* const next = following(batch)) {
    reports_.set_following_matches(own_matches(*next));
  }
  reports_.all_reduce(mesh_.world);
  begin_step_phase(StepPhase::kNone);
  if (auto matches = reports_.following_matches()) {
    counts_ahead_ = {batch.step + 1, std::move(*matches)};
  }
  result.gradient_norm = std::sqrt(reports_.squared_norm());
  return reports_.verdict();
}

CommitArguments Trainer::commit_arguments(const loader::Batch& batch,
                                          const StepResult& result) const {
  CommitArguments commit;
  commit.step = batch.step;
  commit.num_groups = context_.num_groups();
  commit.gradient_norm = result.gradient_norm;
  commit.settings = result.settings;
  commit.weight_decay = optim::weight_decay(options_.schedule);
  return commit;
}

void Trainer::commit(const loader::Batch& batch, StepResult& result) {
  HEADROOM_CHECK(
      !device_decides() || device_has_committed_ == result.verdict.ok(),
      "the device and the vote do not agree");
  if (result.verdict.outcome == data_parallel::Outcome::kOk) {
    const CommitArguments arguments = commit_arguments(batch, result);
    result.optimizer_stepped = device_decides() ? state_.note_commit(arguments)
                                                : state_.commit(arguments);
    result.committed = true;
    if (scales_loss()) state_.counters.loss_scale.note_finite();
  } else if (result.verdict.outcome == data_parallel::Outcome::kNonFinite &&
             may_lower_scale()) {
    state_.commit_without_update(batch.step);
    state_.counters.loss_scale.note_overflow();
    result.lowered_scale = true;
    result.committed = true;
  } else if (result.verdict.outcome == data_parallel::Outcome::kNonFinite &&
             options_.skip_non_finite) {
    state_.commit_without_update(batch.step);
    result.committed = true;
  }
}

// The loss itself is computed before it is scaled.
bool Trainer::may_lower_scale() const {
  return scales_loss() && state_.counters.loss_scale.can_fall() &&
         reports_.losses().is_finite();
}

void Trainer::begin_fault(configs::Fault::Phase phase, int64_t step) {
  if (options_.faults != nullptr) options_.faults->begin(phase, step);
}

void Trainer::end_fault(StepResult& result) {
  if (options_.faults == nullptr) return;
  if (const auto report = options_.faults->end()) {
    result.events.push_back({EventKind::kFault, describe(*report)});
  }
}

// Matches per level that this rank counts for the others: ranks that share an
// image count the same ones.
std::vector<int64_t> Trainer::own_matches(const loader::Batch& batch) const {
  std::vector<int64_t> sums(static_cast<size_t>(matches_.size(0)), 0);
  if (!mesh_.is_last_stage() || mesh_.here.spatial_rank != 0) return sums;
  for (const std::vector<loss::LevelTargets>& micro_batch : batch.targets) {
    for (size_t level = 0; level < sums.size(); ++level) {
      sums[level] += micro_batch[level].size();
    }
  }
  return sums;
}

// Matches per level over the whole global batch: known from labels alone, and
// most often told with the vote of the step before.
loss::GlobalCounts Trainer::count_matches(const loader::Batch& batch) {
  loss::GlobalCounts counts{batch.global_size, {}};
  if (counts_.step != batch.step) {
    counts_ = counts_ahead_.step == batch.step
                  ? std::exchange(counts_ahead_, {})
                  : StepCounts{batch.step, all_matches(batch)};
  }
  if (mesh_.is_last_stage()) counts.matches = counts_.matches;
  return counts;
}

std::vector<int64_t> Trainer::all_matches(const loader::Batch& batch) {
  std::vector<int64_t> sums = own_matches(batch);
  std::ranges::copy(sums, matches_.data_ptr<int64_t>());
  mesh_.world.all_reduce(matches_);
  std::copy_n(matches_.const_data_ptr<int64_t>(), sums.size(), sums.begin());
  return sums;
}

std::optional<data_parallel::Outcome> Trainer::forward_and_backward(
    const loader::Batch& batch, const loss::GlobalCounts& counts,
    StepResult& result) {
  if (prediction_) prediction_->begin_step();
  activations::MemoryMeter& memory = state_.device().memory();
  memory.reset_peak();
  state_.gradients().begin_step();
  state_.batch_norm_sums().zero_();
  reports_.clear();
  items_.zero_();
  const std::vector<plan::SampleRange> micro_batches = micro_batches_of(batch);
  CudaGraphRunner* const captured = micro_batch_runner();
  std::function<at::Tensor(bool)> numbers_of_end;
  if (captured != nullptr) {
    match_capacity_ = match_capacity(micro_batches.front().size());
    captured->begin_step();
    if (device_decides()) {
      numbers_of_end = [&](bool is_last) {
        return is_last ? end_numbers(batch, result) : DeviceState::no_end();
      };
    }
  }
  StageStep::Parts parts =
      step_parts(batch, micro_batches, counts, result, captured);
  parts.end_numbers = numbers_of_end;
  StageStep step(parts);
  std::string failure;
  memory.take_last_refusal();
  try {
    executor_.run(static_cast<int64_t>(micro_batches.size()), step);
  } catch (const c10::OutOfMemoryError& error) {
    failure = error.what_without_backtrace();
  } catch (const std::bad_alloc&) {
    failure = "the host's memory is used up";
  }
  const bool is_ended = captured != nullptr && captured->has_ended_step();
  if (is_ended && failure.empty()) prepare_following(batch, result);
  // The device computes meanwhile what it has been given.
  int64_t predicted = predict_memory(batch);
  const int64_t measured =
      std::max(memory.peak_bytes(),
               captured_ ? captured_->take_peak_before_capture() : 0);
  if (predicted > 0 && !prediction_->knew_workspaces()) predicted = 0;
  reports_.set_bytes(StepReports::Bytes::kMeasuredPeak, measured);
  reports_.set_bytes(StepReports::Bytes::kPredictedPeak, predicted);
  if (predicted > 0) {
    if (auto event =
            prediction_->compare(measured, memory.peak_by_category())) {
      result.events.push_back(std::move(*event));
    }
  }
  note_capture(result);
  device_has_committed_ = false;
  if (!failure.empty()) {
    HEADROOM_CHECK(!is_ended, "a step failed after its end: " + failure);
    note_failure(step.failed_phase(), failure, result);
    return std::nullopt;
  }
  state_.gradients().finish({&state_.batch_norm_sums(), 1});
  if (device_decides() && !is_ended) {
    state_.end_on_device(state_.device().upload(end_numbers(batch, result)),
                         items_);
  }
  const data_parallel::Outcome outcome = end_step(result);
  reports_.set_bytes(StepReports::Bytes::kLive, memory.live_bytes());
  return outcome;
}

StageStep::Parts Trainer::step_parts(
    const loader::Batch& batch, const std::vector<plan::SampleRange>& parts,
    const loss::GlobalCounts& counts, const StepResult& result,
    CudaGraphRunner* captured) {
  return {.batch = batch,
          .micro_batches = parts,
          .assign = options_.assign,
          .counts = counts,
          .gains = options_.gains,
          .routes = routes_,
          .mesh = mesh_,
          .context = context_,
          .state = state_,
          .images = images_,
          .items = items_,
          .loss_scale = result.loss_scale.value_or(1),
          .faults = options_.faults,
          .teacher = options_.teacher,
          .captured = captured,
          .match_capacity = captured == nullptr ? 0 : match_capacity_};
}

const loader::Batch* Trainer::following(const loader::Batch& batch) const {
  const loader::Batch* const next =
      options_.following ? options_.following() : nullptr;
  return next != nullptr && next->step == batch.step + 1 ? next : nullptr;
}

// The graph that reads it is the one that has just ended a step: the same
// micro-batches follow, whose matches no other rank has.
void Trainer::prepare_following(const loader::Batch& batch,
                                const StepResult& result) {
  const loader::Batch* const next = following(batch);
  if (next == nullptr || next->global_size != batch.global_size ||
      next->image_height != batch.image_height ||
      next->image_width != batch.image_width ||
      next->micro_batches != batch.micro_batches || ladder_.num_cuts > 0) {
    return;
  }
  const loss::GlobalCounts counts{next->global_size, own_matches(*next)};
  // Where memory is refused here, the step itself asks for it again and knows
  // what to do then.
  try {
    StageStep(
        step_parts(*next, next->micro_batches, counts, result, captured_.get()))
        .prepare();
  } catch (const c10::OutOfMemoryError&) {
    return;
  } catch (const std::bad_alloc&) {
    return;
  }
}

at::Tensor Trainer::end_numbers(const loader::Batch& batch,
                                const StepResult& result) {
  // Whoever reads the state must have done so.
  state_.before_change();
  if (result.loss_scale) state_.unscale_gradients(*result.loss_scale);
  const bool injected =
      options_.faults != nullptr && options_.faults->is_not_a_number();
  return state_.commit_numbers(commit_arguments(batch, result), !injected);
}

data_parallel::Outcome Trainer::end_step(const StepResult& result) {
  using data_parallel::Outcome;
  if (device_decides()) {
    const kernels::CommitOutcome found = state_.device_state()->outcome();
    reports_.set_losses(found.items);
    reports_.set_squared_norm_share(found.squared_norm);
    device_has_committed_ = found.commits != 0;
    return device_has_committed_ ? Outcome::kOk : Outcome::kNonFinite;
  }
  if (result.loss_scale) state_.unscale_gradients(*result.loss_scale);
  reports_.set_losses(items_);
  reports_.set_squared_norm_share(state_.squared_norm_share());
  const bool injected =
      options_.faults != nullptr && options_.faults->is_not_a_number();
  return reports_.losses().is_finite() && !injected ? Outcome::kOk
                                                    : Outcome::kNonFinite;
}

void Trainer::note_capture(StepResult& result) {
  if (!captured_) return;
  const auto say = [&result](bool& was_said, const std::string& reason) {
    if (!std::exchange(was_said, true)) {
      result.events.push_back({EventKind::kCudaGraphs, reason});
    }
  };
  if (captured_->failure()) {
    say(said_failed_capture_,
        "a micro-batch could not be captured, and all run as they are from "
        "here on: " +
            *captured_->failure());
  }
  if (captured_->num_overfull() > 0) {
    say(said_overfull_,
        cat("a micro-batch has more than ", match_capacity_,
            " matches in a level, for which its graph has room: such ones run "
            "as they are"));
  }
  if (captured_->num_captures() > 0) {
    say(said_capture_,
        std::string("a micro-batch is captured, forward, loss") +
            (device_decides() ? ", backward and commit" : " and backward") +
            ": it is one call of the host's now; captured anew after "
            "validations and checkpoints");
  }
}

int64_t Trainer::match_capacity(int64_t samples) const {
  const auto anchors =
      static_cast<int64_t>(state_.model().levels().front().anchors.size());
  return predict::most_matches(
      predict::most_boxes(options_.labels, samples).boxes, anchors);
}

std::vector<plan::SampleRange> Trainer::micro_batches_of(
    const loader::Batch& batch) const {
  if (ladder_.num_cuts == 0) return batch.micro_batches;
  const int64_t stride = state_.model().max_stride();
  return plan::part_in_smaller_micro_batches(
             cut_, batch.global_size,
             batch.image_height / stride * (batch.image_width / stride),
             mesh_.here.data_parallel_rank,
             rungs_.micro_batches[static_cast<size_t>(ladder_.num_cuts) - 1])
      .micro_batches;
}

void Trainer::note_failure(const std::string& phase, const std::string& failure,
                           StepResult& result) {
  const memory::LadderDecision decision =
      memory::after_failure(rungs_, ladder_);
  ladder_ = decision.state;
  shortfall_ =
      memory::memory_shortfall(state_.device().memory().take_last_refusal());
  result.out_of_memory = failure;
  result.events.push_back(
      memory::out_of_memory_event(phase, failure, shortfall_, decision.reason));
}

void Trainer::note_commit(StepResult& result) {
  const memory::LadderDecision decision = memory::after_commit(rungs_, ladder_);
  ladder_ = decision.state;
  if (decision.move == memory::LadderMove::kStay) return;
  run_layers_by_policy();
  result.events.push_back({EventKind::kActivations, decision.reason});
}

}  // namespace headroom::step
