// The step as a transaction, with ranks as threads: equal to one process for
// every number of ranks, and without any effect if it is not committed.
#include "worker/step/trainer.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <limits>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "tests/support/run_ranks.h"
#include "worker/data/loader/synthetic.h"
#include "worker/step/parallel_context.h"
#include "worker/step/run_data.h"

namespace headroom::step {
namespace {

constexpr int64_t kClasses = loader::kSyntheticClasses;

configs::RunConfig small_config(int64_t batch) {
  configs::RunConfig config;
  config.synthetic_input = true;
  config.image_height = 64;
  config.image_width = 96;
  config.global_batch_size = batch;
  config.precision = configs::Precision::kFp64;
  return config;
}

TrainingStateOptions state_options(collectives::Mesh* mesh) {
  TrainingStateOptions options;
  options.num_classes = kClasses;
  options.scalar_type = at::kDouble;
  options.mesh = mesh;
  return options;
}

struct RankState {
  explicit RankState(const configs::RunConfig& config,
                     collectives::Mesh* mesh = nullptr)
      : state(layers::load_model_table("yolov5n"), state_options(mesh)) {
    options.schedule = {config.hyp, 10, 100, config.global_batch_size, false};
    options.gains = loss::scale_gains(config.hyp, 3, kClasses, 96, 0);
  }
  TrainingState state;
  Trainer::Options options;
};

struct Losses {
  std::vector<double> loss, gradient_norm;
};

Losses train(int ranks, int64_t batch, int64_t group, int steps) {
  const configs::RunConfig config = small_config(batch);
  Losses losses;
  run_ranks(ranks, [&](int rank, collectives::Communicator& communicator) {
    plan::ParallelLayout layout;
    layout.data_parallel_size = ranks;
    collectives::Mesh mesh(communicator, layout);
    RankState run(config, &mesh);
    run.options.plan.layout = layout;
    run.options.plan.micro_batch_size = batch;
    run.options.plan.batch_norm_group_size = group;
    loader::LoaderOptions loading = loader_options(config, run.state.model());
    loading.global_batch_size = batch;
    loading.data_parallel_size = ranks;
    loading.data_parallel_rank = rank;
    loading.micro_batch_size = batch;
    loading.batch_norm_rule = {group};
    loader::SyntheticInput source(loading);
    Trainer trainer(run.options, run.state, mesh);
    for (int step = 0; step < steps; ++step) {
      const StepResult result = trainer.train_step(source.next(), {});
      ASSERT_TRUE(result.committed);
      if (rank != 0) continue;
      losses.loss.push_back(result.loss);
      losses.gradient_norm.push_back(result.gradient_norm);
    }
  });
  return losses;
}

void expect_equal(const Losses& one, const Losses& other) {
  ASSERT_EQ(one.loss.size(), other.loss.size());
  for (size_t step = 0; step < one.loss.size(); ++step) {
    EXPECT_NEAR(other.loss[step] / one.loss[step], 1, 1e-9) << step;
    EXPECT_NEAR(other.gradient_norm[step] / one.gradient_norm[step], 1, 1e-9)
        << step;
  }
}

TEST(Trainer, RanksThatShareAGroupEqualOneProcess) {
  const Losses one = train(1, 4, 4, 3);
  expect_equal(one, train(2, 4, 4, 3));
  expect_equal(one, train(3, 4, 4, 3));
}

TEST(Trainer, RanksWithGroupsOfTheirOwnEqualOneProcess) {
  expect_equal(train(1, 4, 2, 3), train(2, 4, 2, 3));
}

// Shares 5 and 4 of groups [0, 3), [3, 6), [6, 9): one straddles the ranks, one
// is wholly on the later rank.
TEST(Trainer, AGroupBehindAStraddlingOneEqualsOneProcess) {
  expect_equal(train(1, 9, 3, 2), train(2, 9, 3, 2));
}

TEST(Trainer, ARankWithoutASampleTakesPart) {
  expect_equal(train(1, 2, 2, 2), train(3, 2, 2, 2));
}

TEST(Trainer, RepeatsBitForBit) {
  const Losses first = train(2, 4, 4, 3);
  const Losses second = train(2, 4, 4, 3);
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_EQ(first.gradient_norm, second.gradient_norm);
}

// A copy of all tensors that a commit changes.
std::vector<at::Tensor> snapshot(TrainingState& state) {
  std::vector<at::Tensor> copies;
  for (const TrainingState::Buffer& buffer : state.buffers()) {
    copies.push_back(buffer.flat->clone());
  }
  return copies;
}

void expect_unchanged(const std::vector<at::Tensor>& before,
                      TrainingState& state) {
  const auto buffers = state.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_TRUE(at::equal(before[i], *buffers[i].flat)) << buffers[i].name;
  }
}

struct OneRank {
  OneRank() : config(small_config(2)), run(config) {
    run.options.plan.micro_batch_size = 2;
    run.options.plan.batch_norm_group_size = 2;
    loader::LoaderOptions loading = loader_options(config, run.state.model());
    loading.global_batch_size = 2;
    loading.micro_batch_size = 2;
    loading.batch_norm_rule = {2};
    source = std::make_unique<loader::SyntheticInput>(loading);
  }
  configs::RunConfig config;
  RankState run;
  std::unique_ptr<loader::SyntheticInput> source;
  std::unique_ptr<collectives::Communicator> communicator =
      collectives::make_single_communicator();
  collectives::Mesh mesh{*communicator, plan::ParallelLayout{}};
};

TEST(Trainer, AStepThatIsNotFiniteLeavesTheStateAlone) {
  OneRank one;
  one.run.options.gains.obj = std::numeric_limits<double>::infinity();
  Trainer trainer(one.run.options, one.run.state, one.mesh);
  const auto before = snapshot(one.run.state);
  const StepResult result = trainer.train_step(one.source->next(), {});
  EXPECT_FALSE(result.committed);
  EXPECT_EQ(result.verdict.outcome, data_parallel::Outcome::kNonFinite);
  EXPECT_EQ(result.verdict.rank, 0);
  EXPECT_EQ(one.run.state.counters.committed_steps, 0);
  expect_unchanged(before, one.run.state);
}

TEST(Trainer, SkipNonFiniteCountsTheStepAndChangesNothingElse) {
  OneRank one;
  one.run.options.gains.obj = std::numeric_limits<double>::infinity();
  one.run.options.skip_non_finite = true;
  Trainer trainer(one.run.options, one.run.state, one.mesh);
  const auto before = snapshot(one.run.state);
  EXPECT_TRUE(trainer.train_step(one.source->next(), {}).committed);
  EXPECT_EQ(one.run.state.counters.committed_steps, 1);
  expect_unchanged(before, one.run.state);
}

TEST(Trainer, OutOfMemoryAnywhereInTheStepCostsNothingButTime) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  OneRank reference;
  Trainer plain(reference.run.options, reference.run.state, reference.mesh);
  const int64_t before_step =
      activations::CountingAllocator::instance().allocations();
  const StepResult expected = plain.train_step(reference.source->next(), {});
  EXPECT_EQ(expected.attempt, 1);
  const int64_t allocations =
      activations::CountingAllocator::instance().allocations() - before_step;

  for (int tenth = 1; tenth < 10; ++tenth) {
    SCOPED_TRACE(tenth);
    OneRank one;
    configs::Fault fault;
    fault.allocation = allocations * tenth / 10;
    FaultInjection faults({fault}, devices::ComputeDevice(), 0);
    one.run.options.faults = &faults;
    Trainer trainer(one.run.options, one.run.state, one.mesh);
    const StepResult result = trainer.train_step(one.source->next(), {});
    EXPECT_TRUE(result.committed);
    EXPECT_EQ(result.attempt, 2);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.gradient_norm, expected.gradient_norm);
    ASSERT_EQ(result.events.size(), 2u);
    EXPECT_EQ(result.events[0].kind, EventKind::kOutOfMemory);
    EXPECT_EQ(result.events[1].kind, EventKind::kFault);
    EXPECT_EQ(result.events[1].reason, configs::to_string(fault));
  }
}

// Several failures in one step: layers are recomputed, with the same result.
TEST(Trainer, ALeanerAttemptHasTheSameResult) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  StepResult expected;
  {
    OneRank reference;
    Trainer plain(reference.run.options, reference.run.state, reference.mesh);
    expected = plain.train_step(reference.source->next(), {});
  }
  OneRank one;
  FaultInjection faults({{configs::Fault::Kind::kOutOfMemory, 0, 0, 100},
                         {configs::Fault::Kind::kOutOfMemory, 0, 0, 200},
                         {configs::Fault::Kind::kOutOfMemory, 0, 0, 300}},
                        devices::ComputeDevice(), 0);
  one.run.options.faults = &faults;
  Trainer trainer(one.run.options, one.run.state, one.mesh);
  const StepResult result = trainer.train_step(one.source->next(), {});
  EXPECT_TRUE(result.committed);
  EXPECT_EQ(result.attempt, 4);
  EXPECT_EQ(result.loss, expected.loss);
  EXPECT_EQ(result.gradient_norm, expected.gradient_norm);
  EXPECT_LT(result.measured_peak_bytes[0], expected.measured_peak_bytes[0]);
}

TEST(Trainer, AStepThatFitsNowhereLeavesTheStateAlone) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  OneRank one;
  Trainer trainer(one.run.options, one.run.state, one.mesh);
  const auto before = snapshot(one.run.state);
  const loader::Batch batch = one.source->next();
  activations::CountingAllocator& allocator =
      activations::CountingAllocator::instance();
  allocator.set_limit(allocator.live_bytes() + (1 << 20));
  const StepResult result = trainer.train_step(batch, {});
  allocator.set_limit(activations::CountingAllocator::kNoLimit);
  EXPECT_FALSE(result.committed);
  EXPECT_FALSE(result.out_of_memory.empty());
  EXPECT_NE(result.events.back().reason.find("nothing leaner is left"),
            std::string::npos);
  expect_unchanged(before, one.run.state);
  const StepResult again = trainer.train_step(batch, {});
  EXPECT_TRUE(again.committed);
}

TEST(Trainer, AStopRequestedOfOneRankStopsAll) {
  const configs::RunConfig config = small_config(2);
  run_ranks(2, [&](int rank, collectives::Communicator& communicator) {
    plan::ParallelLayout layout;
    layout.data_parallel_size = 2;
    collectives::Mesh mesh(communicator, layout);
    RankState run(config, &mesh);
    run.options.plan.layout = layout;
    run.options.plan.micro_batch_size = 1;
    run.options.plan.batch_norm_group_size = 2;
    loader::LoaderOptions loading = loader_options(config, run.state.model());
    loading.global_batch_size = 2;
    loading.data_parallel_size = 2;
    loading.data_parallel_rank = rank;
    loading.micro_batch_size = 1;
    loading.batch_norm_rule = {2};
    loader::SyntheticInput source(loading);
    Trainer trainer(run.options, run.state, mesh);
    const StepResult result = trainer.train_step(source.next(), [rank] {
      return Trainer::Requests{rank == 1, rank == 0, rank == 1};
    });
    EXPECT_TRUE(result.committed);
    EXPECT_TRUE(result.verdict.save_requested);
    EXPECT_TRUE(result.verdict.stop_requested);
    EXPECT_TRUE(result.verdict.leave_requested);
  });
}

}  // namespace
}  // namespace headroom::step
