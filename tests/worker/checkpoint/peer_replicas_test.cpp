// Tests which state ranks copy for each other, and that the survivors of a loss
// restore it bit for bit.
#include "worker/checkpoint/peer_replicas.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "parallel/base/check.h"
#include "parallel/collectives/mesh.h"
#include "parallel/predict/host_memory.h"
#include "tests/support/run_ranks.h"
#include "tests/worker/step/zero_run.h"
#include "worker/checkpoint/state_restore.h"

namespace headroom::checkpoint {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    EXPECT_TRUE(at::equal(values, b.at(name))) << name;
  }
}

// What one process without peers restores from `held`, and the step.
std::pair<int64_t, Tensors> restored(
    const std::vector<HostStateSnapshot>& held) {
  const auto alone = collectives::make_single_communicator();
  collectives::Mesh mesh(*alone, {});
  step::TrainingState state(model::tiny_table(), step::zero_options({}, &mesh));
  const auto found = restore_state(held, state, 0);
  return {found ? found->committed_steps : -1,
          step::whole_state(state, nullptr)};
}

// The buddy may have left already.
void after_commit(PeerReplicas& copies) {
  try {
    copies.after_commit();
  } catch (const CommunicationError&) {
  }
}

// When rank 1 is lost.
enum class Lost { kBeforeItSent, kInTransfer, kAfterTheVote };

struct Loss {
  int zero_stage;
  int64_t accumulate;
  Lost when;
  bool shares_memory = false;
};

class LossOfAShard : public ::testing::TestWithParam<Loss> {};

// Two ranks train; rank 0 remains. Without the whole part of rank 1 after the
// newest step, it goes back one step.
TEST_P(LossOfAShard, TheOtherRankRestoresTheNewestWholeStep) {
  constexpr int64_t kSteps = 5;
  const Loss& loss = GetParam();
  step::ZeroRun run;
  run.ranks = 2;
  run.zero_stage = loss.zero_stage;
  run.accumulate = loss.accumulate;
  run_ranks(2, [&](int rank, collectives::Communicator& world) {
    collectives::Mesh mesh(world, zero_layout(run));
    step::TrainingState state(model::tiny_table(),
                              step::zero_options(run, &mesh));
    PeerReplicas copies(world, 1, state, loss.shares_memory);
    std::map<int64_t, Tensors> expected;
    for (int64_t step = 0; step < kSteps; ++step) {
      step::run_step(run, state, world, step);
      expected[step + 1] = step::whole_state(state, &mesh);
      const bool is_last = step + 1 == kSteps;
      if (is_last && rank == 1 && loss.when == Lost::kBeforeItSent) return;
      after_commit(copies);
      if (!is_last || loss.when == Lost::kAfterTheVote) copies.settle();
    }
    if (rank == 1) return;
    copies.disconnect();
    std::vector<HostStateSnapshot> held = copies.take();
    held.push_back(hold_state(state, ""));
    const auto [step, tensors] = restored(held);
    EXPECT_EQ(step, loss.when == Lost::kAfterTheVote ? kSteps : kSteps - 1);
    expect_equal(tensors, expected.at(step));
  });
}

INSTANTIATE_TEST_SUITE_P(
    PeerReplicas, LossOfAShard,
    ::testing::Values(
        Loss{1, 1, Lost::kBeforeItSent}, Loss{1, 3, Lost::kBeforeItSent},
        Loss{1, 3, Lost::kInTransfer}, Loss{1, 3, Lost::kAfterTheVote},
        Loss{2, 2, Lost::kBeforeItSent}, Loss{2, 1, Lost::kAfterTheVote},
        Loss{3, 1, Lost::kBeforeItSent}, Loss{3, 2, Lost::kInTransfer},
        Loss{3, 2, Lost::kAfterTheVote}, Loss{1, 1, Lost::kBeforeItSent, true},
        Loss{1, 3, Lost::kBeforeItSent, true},
        Loss{1, 3, Lost::kAfterTheVote, true},
        Loss{2, 1, Lost::kInTransfer, true},
        Loss{3, 2, Lost::kAfterTheVote, true}),
    [](const auto& info) {
      return "zero" + std::to_string(info.param.zero_stage) + "_accumulate" +
             std::to_string(info.param.accumulate) + "_" +
             std::to_string(static_cast<int>(info.param.when)) +
             (info.param.shares_memory ? "_shared" : "");
    });

TEST(PeerReplicas, ACommitSendsOnlyTheSlicesItChanged) {
  for (const int zero_stage : {1, 2, 3}) {
    SCOPED_TRACE(zero_stage);
    step::ZeroRun run;
    run.ranks = 2;
    run.zero_stage = zero_stage;
    run.accumulate = 2;
    run_ranks(2, [&](int, collectives::Communicator& world) {
      collectives::Mesh mesh(world, zero_layout(run));
      step::TrainingState state(model::tiny_table(),
                                step::zero_options(run, &mesh));
      int64_t slice = 0;  // bytes of a rank's slices of one buffer
      for (const auto& buffer : state.buffers()) {
        if (buffer.shards == nullptr) continue;
        slice = static_cast<int64_t>(buffer.flat->nbytes());
      }
      PeerReplicas copies(world, 1, state, /*may_share=*/false);
      for (int64_t step = 0; step < 5; ++step) {
        step::run_step(run, state, world, step);
        const int64_t before = copies.sent_bytes();
        copies.after_commit();
        copies.settle();
        // Weights, momentum and average; else only accumulated gradients. The
        // first time all is sent.
        const int64_t slices = state.has_just_updated() ? 3 : step == 0 ? 4 : 1;
        EXPECT_EQ(copies.sent_bytes() - before, slices * slice) << step;
      }
    });
  }
}

// A step sends where the changed bytes are, and keeps no copy of them.
TEST(PeerReplicas, ABuddyOnThisMachineMapsTheCopies) {
  step::ZeroRun run;
  run.ranks = 2;
  run.zero_stage = 1;
  run_ranks(2, [&](int, collectives::Communicator& world) {
    collectives::Mesh mesh(world, zero_layout(run));
    step::TrainingState state(model::tiny_table(),
                              step::zero_options(run, &mesh));
    PeerReplicas copies(world, 1, state);
    const PeerReplicas sending(world, 1, state, /*may_share=*/false);
    EXPECT_LT(copies.host_bytes(), sending.host_bytes() * 2 / 3);
    for (int64_t step = 0; step < 5; ++step) {
      step::run_step(run, state, world, step);
      const int64_t before = copies.sent_bytes();
      copies.after_commit();
      copies.settle();
      EXPECT_LT(copies.sent_bytes() - before, 200) << step;
    }
  });
}

TEST(PeerReplicas, AReconnectSendsTheNewestPartAgain) {
  step::ZeroRun run;
  run.ranks = 2;
  run.zero_stage = 1;
  run_ranks(2, [&](int rank, collectives::Communicator& world) {
    collectives::Mesh mesh(world, zero_layout(run));
    step::TrainingState state(model::tiny_table(),
                              step::zero_options(run, &mesh));
    PeerReplicas copies(world, 1, state);
    for (int64_t step = 0; step < 3; ++step) {
      step::run_step(run, state, world, step);
      copies.after_commit();
      // The last transfer is dropped.
      if (step < 2) copies.settle();
    }
    const Tensors expected = step::whole_state(state, &mesh);
    copies.reconnect(world);
    copies.settle();
    if (rank == 1) return;
    const auto [step, tensors] = restored(copies.take());
    EXPECT_EQ(step, 3);
    expect_equal(tensors, expected);
  });
}

// The state after `step`, without training; each step runs the optimizer.
void fill(step::TrainingState& state, int64_t step) {
  double number = 0;
  for (const step::TrainingState::Buffer& buffer : state.buffers()) {
    for (size_t slot = 0; slot < buffer.flat_buffer->slots().size(); ++slot) {
      buffer.flat_buffer->view(static_cast<int64_t>(slot), *buffer.flat)
          .fill_(buffer.name == "accumulated_gradients"
                     ? 0
                     : std::sin(static_cast<double>(step) + ++number));
    }
  }
  state.counters.committed_steps = step;
  state.counters.last_optimizer_step = step - 1;
}

struct Stages {
  plan::ParallelLayout layout;
  int shift;
  bool sends;
};

// A stage of a pipeline is sent where no other rank, or no other machine, has
// it. Rank 0, of the first stage, has not committed the newest step when it is
// left alone or, if stages have replicas, with one rank of the last stage.
TEST(PeerReplicas, AStageIsSentOnlyWhereItHasNoReplica) {
  const std::vector<Stages> all = {
      {{.pipeline_parallel_size = 2}, 1, true},
      {{.pipeline_parallel_size = 2, .data_parallel_size = 2}, 1, false},
      // Two machines: each has a stage with both of its replicas.
      {{.pipeline_parallel_size = 2, .data_parallel_size = 2}, 2, true}};
  for (const Stages& one : all) {
    SCOPED_TRACE(one.layout.world_size() * 10 + one.shift);
    std::vector<std::vector<HostStateSnapshot>> held(
        static_cast<size_t>(one.layout.world_size()));
    std::map<int64_t, Tensors> expected;
    run_ranks(one.layout.world_size(), [&](int rank,
                                           collectives::Communicator& world) {
      collectives::Mesh mesh(world, one.layout);
      step::TrainingStateOptions options = step::zero_options({}, &mesh);
      options.layers = mesh.is_first_stage()
                           ? model::LayerGraph::LayerRange{0, 4}
                           : model::LayerGraph::LayerRange{4, 9};
      step::TrainingState state(model::tiny_table(), options);
      PeerReplicas copies(world, one.shift, state, /*may_share=*/false);
      for (const int64_t step : {4, 5, 6}) {
        fill(state, step);
        const Tensors tensors = step::whole_state(state, &mesh);
        if (rank == 0) expected[step] = tensors;
        if (rank == 0 && step == 6) {
          fill(state, 5);  // rank 0 has not committed this step
          break;
        }
        after_commit(copies);
        if (step < 6) copies.settle();
      }
      EXPECT_EQ(copies.sent_bytes() > 10'000, one.sends);
      copies.disconnect();
      held[static_cast<size_t>(rank)] = copies.take();
      held[static_cast<size_t>(rank)].push_back(hold_state(state, ""));
    });
    // Rank 0 remains, and of a pipeline with replicas one of the last stage.
    std::vector<HostStateSnapshot> left = held.front();
    if (one.layout.world_size() > 2) {
      left.insert(left.end(), held.back().begin(), held.back().end());
    }
    const auto [step, tensors] = restored(left);
    EXPECT_EQ(step, 5);
    expect_equal(tensors, expected.at(5));
  }
}

TEST(HeldElsewhere, FollowsFromTheLayoutAndTheMachines) {
  const plan::ParallelLayout all = {.pipeline_parallel_size = 2,
                                    .data_parallel_size = 2,
                                    .spatial_parallel_size = 2};
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_TRUE(is_held_elsewhere(all, rank, true, 1));
    EXPECT_FALSE(is_held_elsewhere(all, rank, true, 2));
    EXPECT_TRUE(is_held_elsewhere(all, rank, false, 2));
    EXPECT_FALSE(is_held_elsewhere(all, rank, false, 4));
  }
  EXPECT_FALSE(is_held_elsewhere({.data_parallel_size = 4}, 1, true, 1));
}

// Statistics are counted in a peer's part too, although a stage on two machines
// sends none. They are small in larger models.
TEST(PeerReplicas, TheirMemoryIsPredicted) {
  configs::RunConfig config;
  config.precision = configs::Precision::kFp64;
  for (const int zero_stage : {1, 3}) {
    step::ZeroRun run;
    run.ranks = 3;
    run.zero_stage = zero_stage;
    plan::Plan plan;
    plan.layout = zero_layout(run);
    plan.zero_stage = zero_stage;
    const int64_t predicted = predict::peer_copy_bytes(
        layers::layer_costs(model::tiny_table()), config, plan, 0);
    run_ranks(3, [&](int, collectives::Communicator& world) {
      collectives::Mesh mesh(world, plan.layout);
      step::TrainingState state(model::tiny_table(),
                                step::zero_options(run, &mesh));
      const PeerReplicas copies(world, 1, state, /*may_share=*/false);
      EXPECT_GE(predicted, copies.host_bytes());
      EXPECT_LE(static_cast<double>(predicted),
                1.1 * static_cast<double>(copies.host_bytes()));
    });
  }
}

}  // namespace
}  // namespace headroom::checkpoint
