// A step is a transaction. Any number of ranks, which are threads here, gives
// the result of one process. A step that is not committed has no effect.
#include "worker/step/trainer.h"

#include <gtest/gtest.h>

#include <limits>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "tests/support/run_ranks.h"
#include "tests/support/state_bytes.h"
#include "tests/worker/step/step_rank.h"

namespace headroom::step {
namespace {

configs::RunConfig small_config(int64_t batch) {
  configs::RunConfig config;
  config.synthetic_input = true;
  config.image_height = 64;
  config.image_width = 96;
  config.global_batch_size = batch;
  config.precision = configs::Precision::kFp64;
  return config;
}

plan::Plan plan_of(int ranks, int64_t micro_batch, int64_t group) {
  plan::Plan plan;
  plan.layout.data_parallel_size = ranks;
  plan.micro_batch_size = micro_batch;
  plan.batch_norm_group_size = group;
  return plan;
}

struct Losses {
  std::vector<double> loss, gradient_norm;
};

Losses train(int ranks, int64_t batch, int64_t group, int steps) {
  const configs::RunConfig config = small_config(batch);
  Losses losses;
  run_ranks(ranks, [&](int rank, collectives::Communicator& communicator) {
    const plan::Plan plan = plan_of(ranks, batch, group);
    collectives::Mesh mesh(communicator, plan.layout);
    StepRank run(config, plan, mesh);
    for (int step = 0; step < steps; ++step) {
      const StepResult result = run.step();
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

// Two ranks have 5 and 4 samples of the groups [0, 3), [3, 6) and [6, 9). The
// second group is on both ranks, the third only on the later rank.
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

struct OneRank {
  std::unique_ptr<collectives::Communicator> communicator =
      collectives::make_single_communicator();
  collectives::Mesh mesh{*communicator, plan::ParallelLayout{}};
  StepRank run{small_config(2), plan_of(1, 2, 2), mesh};
};

TEST(Trainer, AStepThatIsNotFiniteLeavesTheStateAlone) {
  OneRank one;
  one.run.options.gains.obj = std::numeric_limits<double>::infinity();
  const auto before = copies_of(one.run.state);
  const StepResult result = one.run.step();
  EXPECT_FALSE(result.committed);
  EXPECT_EQ(result.verdict.outcome, data_parallel::Outcome::kNonFinite);
  EXPECT_EQ(result.verdict.rank, 0);
  EXPECT_EQ(one.run.state.counters.committed_steps, 0);
  expect_same_state(copies_of(one.run.state), before);
}

TEST(Trainer, SkipNonFiniteCountsTheStepAndChangesNothingElse) {
  OneRank one;
  one.run.options.gains.obj = std::numeric_limits<double>::infinity();
  one.run.options.skip_non_finite = true;
  const auto before = copies_of(one.run.state);
  EXPECT_TRUE(one.run.step().committed);
  EXPECT_EQ(one.run.state.counters.committed_steps, 1);
  expect_same_state(copies_of(one.run.state), before);
}

TEST(Trainer, OutOfMemoryAnywhereInTheStepCostsNothingButTime) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  OneRank reference;
  reference.run.trainer();  // making the trainer allocates too
  const int64_t before_step =
      activations::CountingAllocator::instance().allocations();
  const StepResult expected = reference.run.step();
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
    const StepResult result = one.run.step();
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

// After several failures in one step, layers are recomputed, with the same
// result.
TEST(Trainer, ALeanerAttemptHasTheSameResult) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  StepResult expected;
  {
    OneRank reference;
    expected = reference.run.step();
  }
  OneRank one;
  FaultInjection faults({{configs::Fault::Kind::kOutOfMemory, 0, 0, 100},
                         {configs::Fault::Kind::kOutOfMemory, 0, 0, 200},
                         {configs::Fault::Kind::kOutOfMemory, 0, 0, 300}},
                        devices::ComputeDevice(), 0);
  one.run.options.faults = &faults;
  const StepResult result = one.run.step();
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
  const auto before = copies_of(one.run.state);
  Trainer& trainer = one.run.trainer();
  const loader::Batch batch = one.run.source.next();
  activations::CountingAllocator& allocator =
      activations::CountingAllocator::instance();
  allocator.set_limit(allocator.live_bytes() + (1 << 20));
  const StepResult result = trainer.train_step(batch, {});
  allocator.set_limit(activations::CountingAllocator::kNoLimit);
  EXPECT_FALSE(result.committed);
  EXPECT_FALSE(result.out_of_memory.empty());
  EXPECT_NE(result.events.back().reason.find("nothing leaner is left"),
            std::string::npos);
  expect_same_state(copies_of(one.run.state), before);
  const StepResult again = trainer.train_step(batch, {});
  EXPECT_TRUE(again.committed);
}

TEST(Trainer, AStopRequestedOfOneRankStopsAll) {
  const configs::RunConfig config = small_config(2);
  run_ranks(2, [&](int rank, collectives::Communicator& communicator) {
    const plan::Plan plan = plan_of(2, 1, 2);
    collectives::Mesh mesh(communicator, plan.layout);
    StepRank run(config, plan, mesh);
    const StepResult result =
        run.trainer().train_step(run.source.next(), [rank] {
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
