#include "worker/step/trainer.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>
#include <vector>

#include "parallel/activations/step_phase.h"
#include "parallel/base/check.h"
#include "parallel/machine/core_turn.h"
#include "worker/kernels/cpu/heap.h"
#include "worker/step/stragglers.h"

namespace headroom::step {
namespace {

int64_t images_of(const std::vector<plan::SampleRange>& parts) {
  int64_t images = 0;
  for (const plan::SampleRange& part : parts) images += part.size();
  return images;
}

// Whether no rank has more images of the batch. With fewer, each one takes
// longer, so that such a rank would seem slow.
bool has_full_share(const std::vector<plan::SampleRange>& parts,
                    const loader::Batch& batch, int num_ranks) {
  return images_of(parts) == (batch.global_size + num_ranks - 1) / num_ranks;
}

}  // namespace

Trainer::Trainer(Options options, TrainingState& state, collectives::Mesh& mesh)
    : options_(std::move(options)),
      state_(state),
      mesh_(mesh),
      ladder_(options_.plan, mesh.here.data_parallel_rank,
              options_.schedule.global_batch_size, state.model(),
              options_.host_memory_limit, options_.may_offload,
              /*can_cut=*/options_.assign != nullptr, options_.ladder),
      context_(options_.plan, options_.schedule.global_batch_size,
               state.model().max_stride(), mesh, /*runner=*/nullptr),
      graphs_(options_.captures_micro_batches
                  ? std::make_unique<CudaGraphRunner>(state.device())
                  : nullptr),
      stage_(options_, state, mesh, context_),
      executor_(*mesh.pipeline, pipeline::PipelineSchedule::k1F1B,
                stage_.routes(), state.map_options()),
      matches_(mesh, state.model().levels().size()),
      reports_(mesh.world.rank(), mesh.world.size(),
               static_cast<int64_t>(state.model().levels().size())) {
  if (DeviceCommit::can_decide(state, mesh)) {
    commit_ = std::make_unique<DeviceCommit>(state, reports_, options_.faults,
                                             mesh.world, graphs_.get());
  } else {
    commit_ = std::make_unique<HostCommit>(state, reports_, options_.faults,
                                           mesh.world);
  }
  if (options_.memory) {
    prediction_.emplace(*options_.memory, mesh, state.model());
  }
  run_layers_by_policy();
}

void Trainer::release_graphs() {
  if (graphs_) graphs_->release();
}

void Trainer::run_layers_by_policy() {
  release_graphs();
  context_.set_runner(state_.layer_executor(ladder_.runner()));
}

std::optional<int> Trainer::begin_generation() {
  // Frees the memory of a failed step, and unused caches.
  state_.abandon_step();
  release_graphs();
  kernels::release_freed_memory();
  state_.device().memory().release_caches();

  has_compared_weights_ = false;
  timed_seconds_ = 0;
  timed_images_ = 0;
  matches_.forget();
  connect_statistics();
  const std::optional<int> exhausted_rank = ladder_.agree(mesh_.world);
  run_layers_by_policy();
  return exhausted_rank;
}

// The batches of a run are full, but the last one of an epoch.
void Trainer::connect_statistics() {
  if (!options_.memory) return context_.begin_generation({}, 0, 0);
  const int64_t full = options_.schedule.global_batch_size;
  const int64_t images = options_.memory->num_images;  // 0 if unknown
  std::vector<int64_t> batches;
  if (images == 0 || images >= full) batches.push_back(full);
  if (images % full != 0) batches.push_back(images % full);
  context_.begin_generation(batches, options_.memory->image_height,
                            options_.memory->image_width);
}

StepResult Trainer::train_step(const loader::Batch& batch,
                               const AskForRequests& requests) {
  // A device computes beside the processor, so it needs no turn.
  const CoreTurn::Hold turn =
      state_.device().is_cpu()
          ? take_core_turn(mesh_.world.size(), at::get_num_threads())
          : CoreTurn::Hold(nullptr);
  StepResult result;
  result.settings =
      optim::settings_at(options_.schedule, batch.step, batch.epoch);
  if (scales_loss()) result.loss_scale = state_.counters.loss_scale.value;
  digest_.reset();
  if (compares_weights(batch.step)) digest_ = weight_digest(state_);
  for (; !attempt_step(batch, requests, result); ++result.attempt) {
    if (mesh_.world.size() > 1 || begin_generation()) return result;
  }
  if (!result.committed) return result;
  const memory::LadderDecision decision = ladder_.after_commit();
  if (decision.move != memory::LadderMove::kStay) {
    run_layers_by_policy();
    result.events.push_back({EventKind::kActivations, decision.reason});
  }
  return result;
}

bool Trainer::attempt_step(const loader::Batch& batch,
                           const AskForRequests& requests, StepResult& result) {
  // ---- forward and backward: no lasting state changes ----
  result.out_of_memory.clear();
  begin_fault(configs::Fault::Phase::kStep, batch.step);
  const loss::GlobalCounts counts = matches_.of(batch);
  const std::optional<data_parallel::Outcome> outcome =
      forward_and_backward(batch, counts, result);
  end_fault(result);
  if (!outcome) return false;

  // ---- the vote: from here on all ranks agree ----
  begin_fault(configs::Fault::Phase::kVote, batch.step);
  result.verdict = vote(batch, *outcome, requests, result);
  end_fault(result);
  if (digest_) {
    has_compared_weights_ = true;
    result.weights = judge_weights(reports_.weight_digests(),
                                   mesh_.layout.pipeline_parallel_size);
  }
  note_time();
  if (reports_time(batch.step)) {
    result.seconds_per_image = reports_.seconds_per_image();
  }

  // ---- the commit ----
  begin_fault(configs::Fault::Phase::kCommit, batch.step);
  commit(batch, result);
  if (options_.faults != nullptr) {
    options_.faults->corrupt(*state_.buffers().front().flat);
  }
  end_fault(result);

  // ---- diagnostics from here on ----
  using Bytes = StepReports::Bytes;
  const StepReports::Losses losses = reports_.losses();
  result.terms = losses.terms;
  result.loss = losses.sum() * static_cast<double>(batch.global_size);
  result.measured_peak_bytes =
      reports_.bytes_of_all_ranks(Bytes::kMeasuredPeak);
  result.live_bytes = reports_.bytes_of_all_ranks(Bytes::kLive);
  result.predicted_peak_bytes =
      reports_.bytes_of_all_ranks(Bytes::kPredictedPeak);
  return true;
}

// Predicts and measures the attempt's peak while the device still computes.
void Trainer::report_memory(const loader::Batch& batch, StepResult& result) {
  activations::MemoryMeter& memory = state_.device().memory();
  int64_t predicted = prediction_ && !ladder_.cuts_micro_batches()
                          ? prediction_->predict(batch, ladder_.policies())
                          : 0;
  const int64_t measured = std::max(
      memory.peak_bytes(), graphs_ ? graphs_->take_peak_before_capture() : 0);
  if (predicted > 0 && !prediction_->knew_workspaces()) predicted = 0;
  reports_.set_bytes(StepReports::Bytes::kMeasuredPeak, measured);
  reports_.set_bytes(StepReports::Bytes::kPredictedPeak, predicted);
  if (predicted > 0) {
    if (auto event =
            prediction_->compare(measured, memory.peak_by_category())) {
      result.events.push_back(std::move(*event));
    }
  }
  if (!graphs_) return;
  for (std::string& news : graphs_->take_news()) {
    result.events.push_back({EventKind::kCudaGraphs, std::move(news)});
  }
}

std::optional<data_parallel::Outcome> Trainer::forward_and_backward(
    const loader::Batch& batch, const loss::GlobalCounts& counts,
    StepResult& result) {
  if (prediction_) prediction_->begin_step();
  activations::MemoryMeter& memory = state_.device().memory();
  memory.reset_peak();
  memory.take_last_refusal();
  state_.gradients().begin_step();
  state_.batch_norm_sums().zero_();
  reports_.clear();
  if (graphs_) graphs_->begin_step();
  const std::vector<plan::SampleRange> micro_batches =
      ladder_.micro_batches_of(batch);
  const double loss_factor = loss_factor_of(batch, result);
  stage_.begin({&batch, micro_batches, counts, loss_factor},
               ladder_.allows_capture() ? graphs_.get() : nullptr, *commit_);
  commit_->begin(commit_arguments(batch, result), loss_factor);

  std::string failure;
  timer_.reset();
  if (can_time()) timer_.emplace(state_.device());
  try {
    executor_.run(static_cast<int64_t>(micro_batches.size()), stage_);
  } catch (const c10::OutOfMemoryError& error) {
    failure = error.what_without_backtrace();
  } catch (const std::bad_alloc&) {
    failure = "the host's memory is used up";
  }
  stop_timer();
  const bool has_ended = graphs_ && graphs_->has_ended_step();
  HEADROOM_CHECK(!has_ended || failure.empty(),
                 "a step failed after its end: " + failure);
  if (has_ended) prepare_following(batch, result);
  report_memory(batch, result);
  if (!failure.empty()) {
    note_failure(stage_.failed_phase(), failure, result);
    return std::nullopt;
  }
  state_.gradients().finish({&state_.batch_norm_sums(), 1});
  reports_.set_bytes(StepReports::Bytes::kLive, memory.live_bytes());
  timed_now_ =
      has_full_share(micro_batches, batch, mesh_.layout.data_parallel_size)
          ? images_of(micro_batches)
          : 0;
  report_time(batch.step);
  return commit_->outcome();
}

// A card's time has its waits for other cards in it, so with exchanges inside
// the passes ranks beside a slow one would seem slow, too.
bool Trainer::can_time() const {
  const plan::ParallelLayout& layout = mesh_.layout;
  if (layout.data_parallel_size == 1) return false;
  return state_.device().is_cpu() ||
         (layout.pipeline_parallel_size == 1 &&
          layout.spatial_parallel_size == 1 && options_.plan.zero_stage < 3 &&
          !context_.exchanges_statistics());
}

void Trainer::stop_timer() {
  if (!timer_) return;
  timer_->stop();
  if (options_.faults == nullptr || !state_.device().is_cpu()) return;
  options_.faults->slow_down(timer_->seconds());
  timer_->stop();
}

// A device has finished the passes once the vote is over.
void Trainer::note_time() {
  if (!timer_ || timed_now_ == 0) return;
  const double seconds = timer_->seconds();
  if (seconds <= 0) return;
  timed_seconds_ += seconds;
  timed_images_ += timed_now_;
}

// Reports the time of the steps since the last report, without this one.
void Trainer::report_time(int64_t step) {
  if (!reports_time(step) || timed_images_ == 0) return;
  reports_.set_seconds_per_image(timed_seconds_ /
                                 static_cast<double>(timed_images_));
  timed_seconds_ = 0;
  timed_images_ = 0;
}

bool Trainer::reports_time(int64_t step) const {
  return mesh_.layout.data_parallel_size > 1 &&
         (step + 1) % Stragglers::kSteps == 0;
}

bool Trainer::compares_weights(int64_t step) const {
  const bool has_copies =
      mesh_.world.size() > mesh_.layout.pipeline_parallel_size;
  return options_.weight_digest_every > 0 && has_copies &&
         (!has_compared_weights_ || step % options_.weight_digest_every == 0);
}

const loader::Batch* Trainer::following(const loader::Batch& batch) const {
  const loader::Batch* const next =
      options_.following ? options_.following() : nullptr;
  return next != nullptr && next->step == batch.step + 1 ? next : nullptr;
}

// Copies the next step's first inputs to the device while it still runs this
// step, if the next micro-batches replay the same graph. The matches of peers
// are not known yet: what depends on them is copied when the graph runs.
void Trainer::prepare_following(const loader::Batch& batch,
                                const StepResult& result) {
  const loader::Batch* const next = following(batch);
  if (next == nullptr || next->global_size != batch.global_size ||
      next->image_height != batch.image_height ||
      next->image_width != batch.image_width ||
      next->micro_batches != batch.micro_batches ||
      ladder_.cuts_micro_batches()) {
    return;
  }
  // If memory is refused here, the next step tries again and handles it.
  try {
    stage_.prepare({next,
                    next->micro_batches,
                    {next->global_size, matches_.own(*next)},
                    loss_factor_of(*next, result)});
  } catch (const c10::OutOfMemoryError&) {
    return;
  } catch (const std::bad_alloc&) {
    return;
  }
}

// A head without anchors has a loss that is divided after backward (StepReports
// sums the divisor). It grows with the batch; a power of two keeps gradients in
// float16's range.
double Trainer::loss_factor_of(const loader::Batch& batch,
                               const StepResult& result) const {
  const double scale = result.loss_scale.value_or(1);
  if (state_.model().has_anchors()) return scale;
  const auto images = static_cast<double>(batch.global_size);
  return scale * std::exp2(-std::ceil(std::log2(images)));
}

// This rank ran out of memory: moves it down the ladder for its next attempt.
void Trainer::note_failure(const std::string& phase, const std::string& failure,
                           StepResult& result) {
  const memory::LadderDecision decision = ladder_.after_failure();
  shortfall_ =
      memory::memory_shortfall(state_.device().memory().take_last_refusal());
  result.out_of_memory = failure;
  result.events.push_back(
      memory::out_of_memory_event(phase, failure, shortfall_, decision.reason));
}

data_parallel::Verdict Trainer::vote(const loader::Batch& batch,
                                     data_parallel::Outcome outcome,
                                     const AskForRequests& requests,
                                     StepResult& result) {
  const Requests asked = requests ? requests() : Requests{};
  begin_step_phase(StepPhase::kVote);
  reports_.set_ballot({outcome, asked.stop, mesh_.world.rank(), asked.leave,
                       asked.save, asked.checkpoint, asked.time_is_over});
  if (const loader::Batch* const next = following(batch)) {
    reports_.set_following_matches(matches_.own(*next));
  }
  if (digest_) reports_.set_weight_digest(*digest_);
  commit_->send(stage_.items(), outcome);
  if (graphs_ && !graphs_->has_ended_step()) prepare_following(batch, result);
  commit_->receive();
  begin_step_phase(StepPhase::kNone);
  if (auto matches = reports_.following_matches()) {
    matches_.note(batch.step + 1, std::move(*matches));
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
  const bool is_finite = result.verdict.ok();
  result.optimizer_stepped =
      commit_->finish(commit_arguments(batch, result), is_finite);
  optim::LossScale& scale = state_.counters.loss_scale;
  if (is_finite) {
    if (scales_loss()) scale.note_finite();
    result.committed = true;
    return;
  }
  // The loss itself is computed before scaling: if it is finite, only the
  // scaled gradient overflowed.
  result.lowered_scale =
      scales_loss() && scale.can_fall() && reports_.losses().is_finite();
  result.committed = result.lowered_scale || options_.skip_non_finite;
  if (result.committed) state_.commit_without_update(batch.step);
  if (result.lowered_scale) scale.note_overflow();
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

}  // namespace headroom::step
