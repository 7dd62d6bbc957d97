// ZeRO 1, 2 and 3 train as one process does, in float64. Ranks are threads.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/atomic_file.h"
#include "tests/support/run_ranks.h"
#include "tests/support/state_bytes.h"
#include "tests/worker/step/zero_run.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/step/apply_plan.h"
#include "worker/weights/weights.h"

namespace headroom::step {
namespace {

namespace fs = std::filesystem;

struct Trained {
  std::vector<StepNumbers> steps;
  std::map<std::string, at::Tensor> state;
  std::vector<int64_t> resident;  // bytes per rank
};

Trained train(const ZeroRun& run) {
  Trained result;
  result.resident.resize(static_cast<size_t>(run.ranks));
  run_ranks(run.ranks, [&](int rank, collectives::Communicator& world) {
    collectives::Mesh mesh(world, zero_layout(run));
    TrainingState state(model::tiny_table(), zero_options(run, &mesh));
    for (int step = 0; step < run.steps; ++step) {
      const StepNumbers numbers = run_step(run, state, world, step);
      if (rank == 0) result.steps.push_back(numbers);
    }
    result.resident[static_cast<size_t>(rank)] = resident_bytes(state);
    auto whole = whole_state(state, &mesh);
    if (rank == 0) result.state = std::move(whole);
  });
  return result;
}

void expect_equal(const Trained& one, const Trained& other) {
  ASSERT_EQ(one.steps.size(), other.steps.size());
  for (size_t step = 0; step < one.steps.size(); ++step) {
    EXPECT_NEAR(other.steps[step].loss / one.steps[step].loss, 1, 1e-9) << step;
    EXPECT_NEAR(other.steps[step].norm / one.steps[step].norm, 1, 1e-9) << step;
  }
  ASSERT_EQ(one.state.size(), other.state.size());
  for (const auto& [name, tensor] : one.state) {
    const double scale = tensor.norm().item<double>();
    const double difference =
        (other.state.at(name) - tensor).norm().item<double>();
    EXPECT_LE(difference, 1e-8 * scale + 1e-14) << name;
  }
}

class ZeroTrainingTest : public testing::TestWithParam<
                             std::tuple<int, int, optim::OptimizerKind>> {};

TEST_P(ZeroTrainingTest, EqualsOneProcess) {
  ZeroRun run;
  run.optimizer = std::get<2>(GetParam());
  run.accumulate = 2;
  const Trained one = train(run);
  std::tie(run.ranks, run.zero_stage) =
      std::tuple(std::get<0>(GetParam()), std::get<1>(GetParam()));
  expect_equal(one, train(run));
}

TEST_P(ZeroTrainingTest, UnevenSharesAndARankWithoutSamples) {
  ZeroRun run;
  run.optimizer = std::get<2>(GetParam());
  run.micro_batches = 3;
  run.freeze = 2;
  const Trained one = train(run);
  std::tie(run.ranks, run.zero_stage) =
      std::tuple(std::get<0>(GetParam()), std::get<1>(GetParam()));
  run.crowded = true;
  expect_equal(one, train(run));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ZeroTrainingTest,
    testing::Combine(testing::Values(2, 3, 4), testing::Values(0, 1, 2, 3),
                     testing::Values(optim::OptimizerKind::kSgd,
                                     optim::OptimizerKind::kAdamW)),
    [](const auto& info) {
      return "Zero" + std::to_string(std::get<1>(info.param)) + "Over" +
             std::to_string(std::get<0>(info.param)) +
             (std::get<2>(info.param) == optim::OptimizerKind::kSgd ? "Sgd"
                                                                    : "AdamW");
    });

class ZeroFiles : public testing::Test {
 protected:
  ZeroFiles() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  fs::path folder_ = fs::path(HEADROOM_BUILD_DIR) / "tests" / "zero_files";
};

// If layers are recomputed, or their maps are derived, their weights are
// gathered once in backward, and results are equal to the bit.
TEST(ZeroTraining, ActivationPoliciesChangeNoBit) {
  activations::install_saved_tensor_policies();
  using enum plan::ActivationPolicy;
  for (const auto& [stage, policies] :
       {std::pair(2, std::vector{kRecompute}), std::pair(3, std::vector{kLean}),
        std::pair(3, std::vector{kRecompute, kLean, kOffload})}) {
    run_ranks(3, [&](int rank, collectives::Communicator& world) {
      ZeroRun run;
      run.ranks = 3;
      run.zero_stage = stage;
      plan::ParallelLayout layout;
      layout.data_parallel_size = 3;
      collectives::Mesh mesh(world, layout);
      TrainingState kept(model::tiny_table(), zero_options(run, &mesh));
      TrainingState recomputed(model::tiny_table(), zero_options(run, &mesh));
      ActivationRunner::Options options;
      for (int64_t layer = 0; layer < kept.model().num_layers(); ++layer) {
        options.policies.push_back(
            policies[static_cast<size_t>(layer) % policies.size()]);
      }
      options.layers_join = stage < 3;
      ActivationRunner runner(options);
      for (int step = 0; step < 3; ++step) {
        const int64_t sent = mesh.data->bytes();
        const StepNumbers plain = run_step(run, kept, world, step);
        const int64_t sent_plain = mesh.data->bytes() - sent;
        const StepNumbers again =
            run_step(run, recomputed, world, step, &runner);
        EXPECT_EQ(plain.loss, again.loss);
        EXPECT_EQ(plain.norm, again.norm);
        EXPECT_EQ(mesh.data->bytes() - sent - sent_plain, sent_plain);
      }
      const auto expected = whole_state(kept, &mesh);
      const auto actual = whole_state(recomputed, &mesh);
      if (rank != 0) return;
      for (const auto& [name, tensor] : expected) {
        EXPECT_TRUE(at::equal(tensor, actual.at(name))) << name;
      }
    });
  }
}

// On a mesh of pipeline x data x spatial ranks, every rank holds a part of the
// state. All parts are saved to one file and loaded from it.
TEST_F(ZeroFiles, AMeshOfAllAxesSavesAndLoads) {
  plan::ParallelLayout layout;
  layout.pipeline_parallel_size = 2;
  layout.data_parallel_size = 2;
  layout.spatial_parallel_size = 2;
  std::map<std::string, at::Tensor> expected;
  TrainingStateOptions options = zero_options({}, nullptr);
  {
    TrainingState state(model::tiny_table(), options);
    int64_t seed = 0;
    for (const TrainingState::Buffer& buffer : state.buffers()) {
      for (size_t slot = 0; slot < buffer.flat_buffer->slots().size(); ++slot) {
        const at::Tensor view =
            buffer.flat_buffer->view(static_cast<int64_t>(slot), *buffer.flat);
        view.copy_(at::sin(at::arange(view.numel(), at::kDouble) +
                           static_cast<double>(seed++))
                       .view(view.sizes()));
      }
    }
    state.counters.committed_steps = 7;
    expected = whole_state(state, nullptr);
    checkpoint::save_checkpoint(folder_ / "one", state, nullptr, "{}", 2);
    checkpoint::save_average_weights(folder_ / "one.st", state, nullptr, {});
  }
  for (const int stage : {0, 1, 3}) {
    const fs::path again = folder_ / ("again-" + std::to_string(stage));
    run_ranks(8, [&](int rank, collectives::Communicator& world) {
      collectives::Mesh mesh(world, layout);
      TrainingStateOptions mine = options;
      mine.seed = 3;
      mine.zero_stage = stage;
      mine.mesh = &mesh;
      mine.layers = mesh.is_first_stage() ? model::LayerGraph::LayerRange{0, 4}
                                          : model::LayerGraph::LayerRange{4, 9};
      TrainingState state(model::tiny_table(), mine);
      checkpoint::load_newest_checkpoint(folder_ / "one", state, &mesh);
      EXPECT_EQ(state.counters.committed_steps, 7);
      const auto whole = whole_state(state, &mesh);
      checkpoint::save_checkpoint(again, state, &mesh, "{}", 2);
      checkpoint::save_average_weights(again / "average.st", state, &mesh, {});
      if (rank != 0) return;
      ASSERT_EQ(whole.size(), expected.size());
      int64_t bytes = 0;
      for (const auto& [name, tensor] : expected) {
        EXPECT_TRUE(at::equal(tensor, whole.at(name))) << name;
        bytes += static_cast<int64_t>(tensor.nbytes());
      }
      layers::ModelTable table = model::tiny_table();
      table.num_classes = static_cast<int>(options.num_classes);
      EXPECT_EQ(
          checkpoint::checkpoint_bytes(layers::layer_costs(table),
                                       options.optimizer, options.scalar_type),
          bytes);
    });
    EXPECT_EQ(file_digest(again / "step-7" / "state.safetensors"),
              file_digest(folder_ / "one" / "step-7" / "state.safetensors"));
    EXPECT_EQ(file_digest(again / "average.st"),
              file_digest(folder_ / "one.st"));
  }
}

// Ranks that share an image hold the same slices, but different parts of the
// gradient.
TEST(ZeroTraining, SpatialRanksShareTheirSlices) {
  ZeroRun run;
  const Trained one = train(run);
  run.ranks = 4;
  run.spatial = 2;
  for (const int stage : {0, 1, 2, 3}) {
    run.zero_stage = stage;
    expect_equal(one, train(run));
  }
}

TEST(ZeroTraining, OverOneRankIsNoSharding) {
  ZeroRun run;
  const Trained plain = train(run);
  run.zero_stage = 3;
  const Trained zero = train(run);
  EXPECT_EQ(plain.resident, zero.resident);
  for (const auto& [name, tensor] : plain.state) {
    EXPECT_TRUE(at::equal(tensor, zero.state.at(name))) << name;
  }
}

TEST(ZeroTraining, AFailedStepLeavesTheStateAlone) {
  for (const int stage : {1, 2, 3}) {
    run_ranks(3, [&](int rank, collectives::Communicator& world) {
      ZeroRun run;
      run.ranks = 3;
      run.zero_stage = stage;
      plan::ParallelLayout layout;
      layout.data_parallel_size = 3;
      collectives::Mesh mesh(world, layout);
      TrainingState state(model::tiny_table(), zero_options(run, &mesh));
      run_step(run, state, world, 0);
      const auto before = whole_state(state, &mesh);

      // The step is dropped after its first micro-batch: nothing is committed.
      state.gradients().begin_step();
      run_micro_batch(run, state, 1, rank, 0);
      world.barrier();
      state.abandon_step();
      for (const auto& [name, tensor] : whole_state(state, &mesh)) {
        EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
      }
      run_step(run, state, world, 1);  // the next step must work
    });
  }
}

TEST_F(ZeroFiles, GradientsThatAnEpochCarriesOnSurviveACheckpoint) {
  ZeroRun run;
  run.ranks = 1;
  run.zero_stage = 0;
  run.accumulate = 3;  // the third step makes the first update
  run_ranks(1, [&](int, collectives::Communicator& world) {
    collectives::Mesh mesh(world, plan::ParallelLayout());
    enum class Between { kNothing, kCarries, kCarriesOnResume, kDrops };
    const auto after_three_steps = [&](Between between) {
      TrainingStateOptions options = zero_options(run, &mesh);
      auto state =
          std::make_unique<TrainingState>(model::tiny_table(), options);
      for (int step = 0; step < 2; ++step) run_step(run, *state, world, step);
      if (between == Between::kCarriesOnResume) {
        checkpoint::save_checkpoint(folder_, *state, &mesh, "{}", 2);
        options.seed = 99;
        state = std::make_unique<TrainingState>(model::tiny_table(), options);
        checkpoint::load_newest_checkpoint(folder_, *state, &mesh);
      }
      if (between != Between::kNothing) {
        state->start_epoch(/*carries_accumulation=*/between != Between::kDrops);
      }
      run_step(run, *state, world, 2);
      EXPECT_EQ(state->counters.optimizer_steps, 1);
      return whole_state(*state, &mesh);
    };
    const auto expected = after_three_steps(Between::kNothing);
    for (const auto between : {Between::kCarries, Between::kCarriesOnResume}) {
      for (const auto& [name, tensor] : after_three_steps(between)) {
        EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name;
      }
    }
    bool differs = false;
    for (const auto& [name, tensor] : after_three_steps(Between::kDrops)) {
      differs |= !at::equal(tensor, expected.at(name));
    }
    EXPECT_TRUE(differs);
  });
}

// A state is saved under one layout and loaded under another. Its bits are the
// same, and so is the file when it is saved again.
TEST_F(ZeroFiles, CheckpointsFitEveryOtherLayout) {
  ZeroRun saved_run;
  saved_run.ranks = 3;
  saved_run.zero_stage = 3;
  saved_run.accumulate = 3;  // a partial accumulation is part of the state
  std::map<std::string, at::Tensor> expected;
  run_ranks(3, [&](int rank, collectives::Communicator& world) {
    plan::ParallelLayout layout;
    layout.data_parallel_size = 3;
    collectives::Mesh mesh(world, layout);
    TrainingState state(model::tiny_table(), zero_options(saved_run, &mesh));
    for (int step = 0; step < 4; ++step) {
      run_step(saved_run, state, world, step);
    }
    auto whole = whole_state(state, &mesh);
    if (rank == 0) expected = std::move(whole);
    checkpoint::save_checkpoint(folder_, state, &mesh, "{}", 2);
  });
  EXPECT_GT(expected.at("accumulated_gradients.model.0.conv.weight")
                .abs()
                .sum()
                .item<double>(),
            0);
  const std::tuple<int, int> layouts[] = {{1, 0}, {2, 0}, {2, 1},
                                          {4, 2}, {2, 3}, {4, 3}};
  for (const auto& [ranks, stage] : layouts) {
    ZeroRun run = saved_run;
    run.ranks = ranks;
    run.zero_stage = stage;
    run_ranks(ranks, [&](int rank, collectives::Communicator& world) {
      plan::ParallelLayout layout;
      layout.data_parallel_size = world.size();
      collectives::Mesh mesh(world, layout);
      TrainingStateOptions options = zero_options(run, &mesh);
      options.seed = 99;
      TrainingState state(model::tiny_table(), options);
      checkpoint::load_newest_checkpoint(folder_, state, &mesh);
      EXPECT_EQ(state.counters.committed_steps, 4);
      EXPECT_EQ(state.counters.optimizer_steps, 1);
      const auto whole = whole_state(state, &mesh);
      if (rank != 0) return;
      ASSERT_EQ(whole.size(), expected.size());
      for (const auto& [name, tensor] : expected) {
        EXPECT_TRUE(at::equal(tensor, whole.at(name)))
            << name << " under ZeRO " << stage << " over " << ranks;
      }
    });
  }
}

TEST_F(ZeroFiles, AverageWeightsAreOneFileUnderAnyLayout) {
  for (const int ranks : {1, 3}) {
    run_ranks(ranks, [&](int, collectives::Communicator& world) {
      ZeroRun run;
      run.ranks = world.size();
      run.zero_stage = 3;
      plan::ParallelLayout layout;
      layout.data_parallel_size = world.size();
      collectives::Mesh mesh(world, layout);
      TrainingState state(model::tiny_table(), zero_options(run, &mesh));
      checkpoint::save_average_weights(
          folder_ / (std::to_string(world.size()) + ".st"), state, &mesh,
          {{"names", "x"}});
    });
  }
  model::LayerGraph graph(model::tiny_table(), 2, at::kDouble, 5);
  const weights::LoadReport report =
      weights::load_weights(folder_ / "3.st", graph, {});
  EXPECT_EQ(report.transferred, report.total);
  EXPECT_EQ(report.metadata.at("names"), "x");
  model::LayerGraph fresh(model::tiny_table(), 2, at::kDouble, 0);
  const model::NamedTensors loaded = graph.state(), expected = fresh.state();
  for (size_t i = 0; i < loaded.size(); ++i) {
    EXPECT_TRUE(at::equal(*loaded[i].tensor, *expected[i].tensor))
        << loaded[i].name;
  }
  EXPECT_EQ(fs::file_size(folder_ / "1.st"), fs::file_size(folder_ / "3.st"));
}

TEST(ZeroTraining, TheAverageRunsFromItsShards) {
  const at::Tensor images = image(0, 0);
  model::LayerGraph graph(model::tiny_table(), 2, at::kDouble, 0);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> expected = graph.forward(images, {});
  for (const int stage : {1, 2, 3}) {
    run_ranks(2, [&](int rank, collectives::Communicator& world) {
      const at::NoGradGuard no_grad_here;
      ZeroRun run;
      run.ranks = 2;
      run.zero_stage = stage;
      plan::ParallelLayout layout;
      layout.data_parallel_size = 2;
      collectives::Mesh mesh(world, layout);
      TrainingState state(model::tiny_table(), zero_options(run, &mesh));
      ASSERT_NE(state.average_layer_executor(), nullptr);
      if (rank == 1) return state.average_layer_executor()->skip();
      model::StepContext context;
      context.runner = state.average_layer_executor();
      const auto heads = state.average_model().forward(images, context);
      for (size_t i = 0; i < heads.size(); ++i) {
        EXPECT_TRUE(at::equal(heads[i], expected[i]));
      }
    });
  }
}

}  // namespace
}  // namespace headroom::step
