// Measures the memory of a rank under ZeRO 3: between steps, and at the peak of
// a step whose activations are small compared with the state.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <limits>

#include "parallel/activations/counting_allocator.h"
#include "tests/support/run_ranks.h"
#include "tests/support/state_bytes.h"
#include "worker/step/training_state.h"

namespace headroom::step {
namespace {

constexpr int kRanks = 4;

struct Measured {
  int64_t undivided = 0;  // bytes of the state on one process
  std::array<int64_t, kRanks> resident{}, live{}, peak{};
  std::array<int64_t, kRanks> commit_allocations{};
};

// Measures one step with one image of 64x64 per rank.
Measured measure(const std::string& model, int zero_stage,
                 optim::OptimizerKind optimizer) {
  activations::CountingAllocator::install();
  TrainingStateOptions options;
  options.num_classes = 3;
  options.optimizer = optimizer;
  Measured measured;
  {
    TrainingState whole(layers::load_model_table(model), options);
    measured.undivided = resident_bytes(whole);
  }
  options.zero_stage = zero_stage;
  run_ranks(kRanks, [&](int rank, collectives::Communicator& world) {
    activations::CountingAllocator::count_separately();
    activations::CountingAllocator& allocator =
        activations::CountingAllocator::instance();
    plan::ParallelLayout layout;
    layout.data_parallel_size = kRanks;
    collectives::Mesh mesh(world, layout);
    TrainingStateOptions mine = options;
    mine.mesh = &mesh;
    TrainingState state(layers::load_model_table(model), mine);
    const auto place = static_cast<size_t>(rank);
    measured.resident[place] = resident_bytes(state);
    measured.live[place] = allocator.live_bytes();
    allocator.reset_peak();
    state.gradients().begin_step();
    state.gradients().begin_forward();
    at::Tensor loss = at::zeros({});
    {
      model::StepContext context;
      context.training = true;
      context.groups = {{0, 1, 1, true}};
      context.batch_norm_sums = state.batch_norm_sums();
      context.runner = state.layer_executor();
      for (const at::Tensor& head :
           state.model().forward(at::ones({1, 3, 64, 64}), context)) {
        loss = loss + head.square().mean();
      }
    }
    state.gradients().begin_micro_batch(true);
    loss.backward();
    state.gradients().finish({});
    measured.peak[place] = allocator.peak_bytes();
    CommitArguments commit;
    commit.settings.lr = {0.01, 0.01, 0.01};
    commit.gradient_norm = 1;
    const int64_t before = allocator.allocations();
    EXPECT_TRUE(state.commit(commit));
    measured.commit_allocations[place] = allocator.allocations() - before;
  });
  return measured;
}

double share(int64_t bytes, const Measured& measured) {
  return static_cast<double>(bytes) / static_cast<double>(measured.undivided);
}

struct Bound {
  std::string model;
  // The largest peak, as a share of the state. It is larger for yolov5n, whose
  // activations are larger compared with the state.
  double peak;
};

class ZeroMemoryTest : public testing::TestWithParam<Bound> {};

TEST_P(ZeroMemoryTest, ZeRO3LeavesAQuarterOnFourRanks) {
  for (const optim::OptimizerKind optimizer :
       {optim::OptimizerKind::kSgd, optim::OptimizerKind::kAdamW}) {
    const Measured measured = measure(GetParam().model, 3, optimizer);
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto place = static_cast<size_t>(rank);
      std::printf(
          "%s, %s, rank %d: resident %.4f, live %.4f, peak %.4f of "
          "%.1f MiB\n",
          GetParam().model.c_str(), to_string(optimizer).c_str(), rank,
          share(measured.resident[place], measured),
          share(measured.live[place], measured),
          share(measured.peak[place], measured),
          static_cast<double>(measured.undivided) / (1 << 20));
      EXPECT_LE(share(measured.resident[place], measured), 0.26);
      EXPECT_LE(share(measured.peak[place], measured), GetParam().peak);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ZeroMemoryTest,
                         testing::Values(Bound{"yolov5n", 0.40},
                                         Bound{"yolov5s", 0.38}),
                         [](const auto& info) { return info.param.model; });

TEST(ZeroMemory, EachStageHoldsLessThanTheOneBefore) {
  int64_t before = std::numeric_limits<int64_t>::max();
  for (const int stage : {0, 1, 2, 3}) {
    const Measured measured =
        measure("yolov5n", stage, optim::OptimizerKind::kSgd);
    std::printf("ZeRO %d: resident %.4f\n", stage,
                share(measured.resident[0], measured));
    EXPECT_LT(measured.resident[0], before);
    before = measured.resident[0];
  }
}

// After the vote nothing allocates: neither the optimizer nor the gather.
TEST(ZeroMemory, ACommitAllocatesNothing) {
  for (const int stage : {0, 1, 2, 3}) {
    const Measured measured =
        measure("yolov5n", stage, optim::OptimizerKind::kAdamW);
    for (const int64_t allocations : measured.commit_allocations) {
      EXPECT_EQ(allocations, 0) << "ZeRO " << stage;
    }
  }
}

}  // namespace
}  // namespace headroom::step
