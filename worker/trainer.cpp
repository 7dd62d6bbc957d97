#include "worker/trainer.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/plan/batch_split.h"
#include "worker/network_input.h"

namespace headroom {

namespace {
constexpr int64_t kItems = 3;  // box, obj, cls
}  // namespace

Trainer::Trainer(Options options, TrainingState& state,
                 Communicator& communicator)
    : options_(std::move(options)),
      state_(state),
      communicator_(communicator),
      statistics_communicator_(communicator.split(0, communicator.rank())),
      exchange_(*statistics_communicator_),
      reports_(at::zeros({kItems + communicator.size()}, at::kDouble)) {}

StepResult Trainer::train_step(const Batch& batch, bool stop_requested) {
  StepResult result;
  result.settings = settings_at(options_.schedule, batch.step, batch.epoch);

  // Forward and backward change nothing that lasts.
  const GlobalCounts counts = count_matches(batch);
  Attempt attempt = forward_and_backward(batch, counts);
  result.gradient_norm = global_norm();
  if (attempt.outcome == Outcome::kOk && !std::isfinite(result.gradient_norm)) {
    attempt = {Outcome::kNonFinite, "the gradient is not finite"};
  }

  // The vote: from here on all ranks agree.
  result.verdict = cast_vote(
      communicator_, {attempt.outcome, stop_requested, communicator_.rank()});

  // The commit.
  if (result.verdict.outcome == Outcome::kOk) {
    const GroupRequest request = group_request(batch);
    CommitArguments commit;
    commit.step = batch.step;
    commit.num_groups = static_cast<int64_t>(
        batch_norm_groups(request.global_size,
                          request.cut.batch_norm_group_size,
                          request.smallest_map_elements)
            .size());
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
  const double* reports = reports_.const_data_ptr<double>();
  result.box = reports[0];
  result.obj = reports[1];
  result.cls = reports[2];
  result.loss = (result.box + result.obj + result.cls) *
                static_cast<double>(batch.global_size);
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    result.measured_peak_bytes.push_back(
        static_cast<int64_t>(reports[kItems + rank]));
  }
  return result;
}

// Matches per level over the whole global batch: known from labels alone.
GlobalCounts Trainer::count_matches(const Batch& batch) {
  const auto levels = static_cast<int64_t>(state_.model().levels().size());
  at::Tensor matches = at::zeros({levels}, at::kLong);
  int64_t* sums = matches.data_ptr<int64_t>();
  for (const std::vector<LevelTargets>& micro_batch : batch.targets) {
    for (int64_t level = 0; level < levels; ++level) {
      sums[level] += micro_batch[level].size();
    }
  }
  communicator_.all_reduce(matches);
  return {batch.global_size, std::vector<int64_t>(sums, sums + levels)};
}

Trainer::Attempt Trainer::forward_and_backward(const Batch& batch,
                                               const GlobalCounts& counts) {
  Attempt attempt;
  CountingAllocator::instance().reset_peak();
  StepGradients& gradients = state_.gradients();
  gradients.begin_step();
  state_.batch_norm_sums().zero_();
  reports_.zero_();
  double* reports = reports_.data_ptr<double>();

  const std::vector<SampleRange>& parts = batch.micro_batches;
  HEADROOM_CHECK(parts.size() == batch.targets.size(),
                 "micro-batches of the loader and of the step differ");
  bool spans_ranks = false;
  size_t passes_begun = 0;  // forward and backward of each micro-batch
  try {
    for (size_t i = 0; i < parts.size(); ++i) {
      const StepContext context = step_context(batch, parts[i]);
      spans_ranks |= context.exchange != nullptr;
      ++passes_begun;
      gradients.begin_forward();
      const std::vector<at::Tensor> heads = state_.model().forward(
          network_input(
              batch.images.narrow(0, parts[i].begin - batch.local_begin,
                                  parts[i].size()),
              state_.scalar_type()),
          context);
      const Loss loss =
          detection_loss(heads, batch.targets[i], counts, options_.gains);
      ++passes_begun;
      gradients.begin_micro_batch(/*is_last=*/i + 1 == parts.size());
      loss.total.backward();
      const double* items = loss.items.const_data_ptr<double>();
      for (int64_t item = 0; item < kItems; ++item) {
        reports[item] += items[item];
        if (!std::isfinite(items[item])) {
          attempt = {Outcome::kNonFinite, "the loss is not finite"};
        }
      }
    }
  } catch (const c10::OutOfMemoryError& error) {
    // With statistics that span ranks the peers wait inside the forward: only
    // leaving frees them, and the run ends at the committed step.
    if (spans_ranks) throw;
    attempt = {Outcome::kOutOfMemory, error.what_without_backtrace()};
  }
  reports[kItems + communicator_.rank()] =
      static_cast<double>(CountingAllocator::instance().peak_bytes());
  std::vector<at::Tensor> extra = {state_.batch_norm_sums(), reports_};
  if (attempt.outcome == Outcome::kOutOfMemory) {
    gradients.complete_pass();
    for (; passes_begun < 2 * parts.size(); ++passes_begun) {
      if (passes_begun % 2 == 0) {
        gradients.begin_forward();
      } else {
        gradients.begin_micro_batch(passes_begun + 1 == 2 * parts.size());
      }
      gradients.complete_pass();
    }
    gradients.complete_with_zeros(extra);
  } else {
    gradients.finish(extra);
  }
  return attempt;
}

double Trainer::global_norm() {
  double squared = state_.squared_norm_share();
  communicator_.all_reduce(at::from_blob(&squared, {1}, at::kDouble));
  return std::sqrt(squared);
}

GroupRequest Trainer::group_request(const Batch& batch) {
  const int64_t stride = state_.model().max_stride();
  const Plan& plan = options_.plan;
  return {{options_.schedule.global_batch_size, plan.layout.data_parallel_size,
           plan.micro_batch_size, plan.batch_norm_group_size},
          batch.global_size,
          batch.image_height / stride * (batch.image_width / stride)};
}

StepContext Trainer::step_context(const Batch& batch, SampleRange part) {
  const StepGroups groups = groups_of(group_request(batch), part);
  StepContext context;
  context.training = true;
  context.groups = groups.groups;
  context.exchange = groups.span_ranks ? &exchange_ : nullptr;
  context.runner = state_.row_runner();
  context.batch_norm_sums = state_.batch_norm_sums();
  return context;
}

}  // namespace headroom
