// If a rank runs out of memory anywhere in a step, only time is lost, under
// layouts whose collectives interleave. Losses and gradients are equal to the
// last bit, and no memory is left behind. Ranks are threads.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "tests/support/run_ranks.h"
#include "tests/worker/step/step_rank.h"

namespace headroom::step {
namespace {

struct Case {
  std::string name;
  std::string layout = "data=1";
  int zero_stage = 0;
  int64_t batch = 4;
  int64_t group = 4;
  int64_t micro_batch = 4;
  plan::ActivationPolicy policy = plan::ActivationPolicy::kKeep;
  int64_t steps = 3;
  RankBackend backend = RankBackend::kLocal;
  int64_t limit = 0;  // bytes of each rank; 0: no bound
};

struct StepNumbers {
  double loss = 0, gradient_norm = 0;
  std::vector<int64_t> live_bytes;
  int64_t attempts = 0;
  int64_t peak_bytes = 0;
};

struct Trained {
  std::vector<StepNumbers> steps;
  std::map<int, std::vector<int64_t>> allocations;  // key: rank; per step
  std::vector<memory::StepEvent> events;            // the events of all ranks
};

configs::RunConfig config_of(const Case& of) {
  configs::RunConfig config;
  config.synthetic_input = true;
  config.image_height = 64;
  config.image_width = 64;
  config.global_batch_size = of.batch;
  config.precision = configs::Precision::kFp64;
  return config;
}

plan::Plan plan_of(const Case& of) {
  plan::Plan plan;
  plan.layout = plan::parse_layout(of.layout);
  plan.zero_stage = of.zero_stage;
  plan.micro_batch_size = of.micro_batch;
  plan.batch_norm_group_size = of.group;
  if (plan.layout.pipeline_parallel_size == 2) plan.stage_begins = {0, 9};
  if (of.policy != plan::ActivationPolicy::kKeep)
    plan.activation_policies.assign(25, of.policy);
  return plan;
}

Trained train(const Case& of, const std::vector<configs::Fault>& faults) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  const configs::RunConfig config = config_of(of);
  const plan::Plan plan = plan_of(of);
  Trained run;
  std::mutex mutex;
  RankOptions ranks;
  ranks.backend = of.backend;
  ranks.time_limit = std::chrono::seconds(300);
  RankGenerations generations(plan.layout.world_size(), ranks);
  run_ranks(
      plan.layout.world_size(),
      [&](int rank, collectives::Communicator&) {
        collectives::CountingCommunicator world(generations.next(rank));
        collectives::Mesh mesh(world, plan.layout);
        StepRank own(config, plan, mesh);
        FaultInjection injection(faults, devices::ComputeDevice(), rank);
        own.options.faults = &injection;
        Trainer& trainer = own.trainer();
        // As in a run, all ranks connect again after a failure on any rank.
        const auto train_step = [&](const loader::Batch& batch) {
          for (int64_t attempts = 1;; ++attempts) {
            StepResult result;
            try {
              result = trainer.train_step(batch, {});
            } catch (const CommunicationError&) {
            }
            {
              const std::lock_guard lock(mutex);
              run.events.insert(run.events.end(), result.events.begin(),
                                result.events.end());
            }
            if (world.size() > 1) result.attempt = attempts;
            if (result.committed || world.size() == 1) return result;
            mesh.disconnect();
            world.disconnect();
            world.reconnect(generations.next(rank));
            mesh.reconnect();
            if (trainer.begin_generation()) return result;
          }
        };
        if (of.limit > 0)
          activations::CountingAllocator::instance().set_limit(of.limit);
        for (int64_t step = 0; step < of.steps; ++step) {
          const loader::Batch batch = own.source.next();
          const int64_t before =
              activations::CountingAllocator::instance().allocations();
          const StepResult result = train_step(batch);
          ASSERT_TRUE(result.committed) << "rank " << rank;
          const std::lock_guard lock(mutex);
          run.allocations[rank].push_back(
              activations::CountingAllocator::instance().allocations() -
              before);
          if (rank != 0) continue;
          run.steps.push_back({result.loss, result.gradient_norm,
                               result.live_bytes, result.attempt,
                               result.measured_peak_bytes[0]});
        }
      },
      ranks);
  return run;
}

int64_t count(const Trained& run, EventKind kind) {
  return std::ranges::count_if(run.events, [&](const memory::StepEvent& event) {
    return event.kind == kind;
  });
}

configs::Fault oom(int rank, int64_t step, int64_t allocation) {
  configs::Fault fault;
  fault.rank = rank;
  fault.step = step;
  fault.allocation = allocation;
  return fault;
}

void expect_same(const Trained& calm, const Trained& disturbed) {
  ASSERT_EQ(calm.steps.size(), disturbed.steps.size());
  for (size_t step = 0; step < calm.steps.size(); ++step) {
    SCOPED_TRACE(step);
    EXPECT_EQ(calm.steps[step].loss, disturbed.steps[step].loss);
    EXPECT_EQ(calm.steps[step].gradient_norm,
              disturbed.steps[step].gradient_norm);
    EXPECT_EQ(calm.steps[step].live_bytes, disturbed.steps[step].live_bytes);
  }
}

class OutOfMemory : public testing::TestWithParam<Case> {};

// Every rank in turn fails once in a step, each time at a later allocation.
TEST_P(OutOfMemory, AnywhereInAStepCostsNothingButTime) {
  constexpr int64_t kPoints = 6;
  Case layout = GetParam();
  layout.steps = kPoints;
  const Trained calm = train(layout, {});
  const int ranks = static_cast<int>(calm.allocations.size());
  std::vector<configs::Fault> faults;
  for (int64_t step = 0; step < kPoints; ++step) {
    const int rank = static_cast<int>(step) % ranks;
    const int64_t last = calm.allocations.at(rank)[static_cast<size_t>(step)];
    // The first allocation, the last one, and some between them.
    faults.push_back(oom(rank, step, 1 + (last - 1) * step / (kPoints - 1)));
  }
  const Trained disturbed = train(layout, faults);
  expect_same(calm, disturbed);
  EXPECT_EQ(count(disturbed, EventKind::kFault), kPoints);
  EXPECT_EQ(count(disturbed, EventKind::kOutOfMemory), kPoints);
  for (const StepNumbers& step : disturbed.steps) EXPECT_EQ(step.attempts, 2);
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, OutOfMemory,
                         testing::Values(Case{"data2", "data=2", 0, 4, 2, 2},
                                         Case{"zero3_spanning", "data=2", 3},
                                         Case{"zero3_spatial2",
                                              "data=2,spatial=2", 3, 4, 2, 2}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Slow, OutOfMemory,
    testing::Values(Case{"one", "data=1"}, Case{"data2_spanning", "data=2"},
                    Case{"zero2_spanning", "data=2", 2},
                    Case{"zero3_spanning_recompute", "data=2", 3, 4, 4, 4,
                         plan::ActivationPolicy::kRecompute},
                    Case{"zero2_spatial2_spanning", "data=2,spatial=2", 2},
                    Case{"zero3_spatial2_lean", "data=2,spatial=2", 3, 4, 2, 2,
                         plan::ActivationPolicy::kLean},
                    Case{"zero3_pipeline2", "data=2,pipeline=2", 3, 4, 4, 4},
                    Case{"pipeline2", "pipeline=2", 0, 4, 1, 1},
                    // In these cases the weights of a layer are fetched ahead.
                    Case{"zero3_spanning_gloo", "data=2", 3, 4, 4, 4,
                         plan::ActivationPolicy::kKeep, 3,
                         RankBackend::kNetwork},
                    Case{"zero3_spatial2_shared", "data=2,spatial=2", 3, 4, 2,
                         2, plan::ActivationPolicy::kKeep, 3,
                         RankBackend::kSharedMemory}),
    name_of);

// The run goes down all rungs. Policies change no bit. Smaller micro-batches,
// which all ranks use together, change the order of sums.
TEST(OutOfMemoryLadder, EveryRungGivesTheSameResult) {
  Case many{"data2", "data=2", 0, 16, 2, 8};
  many.steps = 2;
  const Trained calm = train(many, {});
  const std::vector<std::string> rungs = {
      "caches are released and the step is tried again",
      "from now on layers are lean",
      "from now on layers are recomputed",
      "from now on layers are offloaded",
      "from now on micro-batches of 4 on all ranks",
      "from now on micro-batches of 2 on all ranks"};
  std::vector<configs::Fault> faults;
  for (size_t rung = 0; rung < rungs.size(); ++rung) {
    faults.push_back(oom(1, 0, 200));
    const Trained run = train(many, faults);
    ASSERT_EQ(run.steps.size(), 2u);
    EXPECT_EQ(run.steps[0].attempts, static_cast<int64_t>(rung) + 2);
    EXPECT_EQ(run.steps[1].attempts, 1);
    std::vector<std::string> reasons;
    for (const memory::StepEvent& event : run.events) {
      if (event.kind == EventKind::kOutOfMemory)
        reasons.push_back(event.reason);
    }
    ASSERT_EQ(reasons.size(), rung + 1);
    EXPECT_NE(reasons.back().find(rungs[rung]), std::string::npos)
        << reasons.back();
    if (rung < 4) {
      expect_same(calm, run);
      continue;
    }
    for (size_t step = 0; step < 2; ++step) {
      EXPECT_NEAR(run.steps[step].loss / calm.steps[step].loss, 1, 1e-9);
      EXPECT_NEAR(
          run.steps[step].gradient_norm / calm.steps[step].gradient_norm, 1,
          1e-9);
    }
  }
}

// Neither the vote nor the commit allocates, under any ZeRO stage.
TEST(OutOfMemoryPhases, NothingIsAllocatedAfterTheVote) {
  for (const int zero_stage : {0, 1, 2, 3}) {
    std::vector<configs::Fault> faults;
    for (const configs::Fault::Phase phase :
         {configs::Fault::Phase::kVote, configs::Fault::Phase::kCommit}) {
      for (int rank = 0; rank < 2; ++rank) {
        faults.push_back(oom(rank, 2, 1));
        faults.back().phase = phase;
      }
    }
    Case zero{"zero", "data=2", zero_stage};
    zero.backend = RankBackend::kNetwork;
    const Trained run = train(zero, faults);
    ASSERT_EQ(count(run, EventKind::kFault), 4) << "stage " << zero_stage;
    for (const memory::StepEvent& event : run.events) {
      EXPECT_NE(event.reason.find("not reached, 0 allocations"),
                std::string::npos)
          << event.reason;
    }
  }
}

// A ballast takes two fifths of the limit during a run. The run goes on with
// leaner policies and the same losses, also in later steps.
TEST(OutOfMemoryBallast, TakesALeanerPolicyAndChangesNoLoss) {
  Case one{"one", "data=1", 0, 8, 4, 8};
  one.steps = 5;
  const Trained calm = train(one, {});
  const int64_t peak = calm.steps[1].peak_bytes;
  one.limit = peak + (peak >> 5);
  configs::Fault ballast;
  ballast.kind = configs::Fault::Kind::kBallast;
  ballast.step = 2;
  ballast.bytes =
      one.limit - peak + (peak - calm.steps[1].live_bytes[0]) * 2 / 5;
  const Trained run = train(one, {ballast});
  ASSERT_EQ(run.steps.size(), 5u);
  EXPECT_EQ(count(run, EventKind::kFault), 1);
  EXPECT_GE(count(run, EventKind::kOutOfMemory), 2);
  for (size_t step = 0; step < 5; ++step) {
    EXPECT_EQ(run.steps[step].loss, calm.steps[step].loss);
    EXPECT_EQ(run.steps[step].gradient_norm, calm.steps[step].gradient_norm);
    EXPECT_EQ(run.steps[step].live_bytes[0] - calm.steps[step].live_bytes[0],
              step < 2 ? 0 : ballast.bytes);
    EXPECT_LE(run.steps[step].peak_bytes, one.limit);
    EXPECT_EQ(run.steps[step].attempts > 1, step == 2) << step;
  }
}

}  // namespace
}  // namespace headroom::step
