#include "worker/step/stage_forward.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "parallel/activations/counting_allocator.h"
#include "tests/support/run_ranks.h"
#include "worker/data/loader/synthetic.h"
#include "worker/step/apply_plan.h"
#include "worker/step/run_data.h"
#include "worker/step/training_state.h"

namespace headroom::step {
namespace {

struct Network {
  Network()
      : model(layers::load_model_table("yolov5n"), /*num_classes=*/1,
              at::kFloat, 0) {
    configs::RunConfig config;
    config.image_height = config.image_width = 64;
    loader::LoaderOptions options = loader_options(config, model);
    options.global_batch_size = 7;
    options.micro_batch_size = 7;
    batch = loader::SyntheticInput(options).next();
  }
  model::LayerGraph model;
  loader::Batch batch;
  std::unique_ptr<collectives::Communicator> alone =
      collectives::make_single_communicator();
  ReplicaForward replica{model, *alone, at::kFloat};
};

TEST(StageForward, GoesThroughInHalvesWhereMemoryDoesNotSuffice) {
  activations::CountingAllocator::install();
  Network network;
  activations::CountingAllocator& allocator =
      activations::CountingAllocator::instance();
  allocator.reset_peak();
  const int64_t before = allocator.live_bytes();
  const auto whole = network.replica.network.run(network.batch);
  EXPECT_EQ(network.replica.network.num_halvings(), 0);
  const int64_t needed = allocator.peak_bytes() - before;

  allocator.set_limit(allocator.live_bytes() + needed * 2 / 3);
  const auto halves = network.replica.network.run(network.batch);
  allocator.set_limit(activations::CountingAllocator::kNoLimit);
  EXPECT_GT(network.replica.network.num_halvings(), 0);
  ASSERT_EQ(halves.size(), whole.size());
  for (size_t level = 0; level < whole.size(); ++level) {
    EXPECT_TRUE(at::allclose(halves[level], whole[level], 1e-5, 1e-5));
  }
}

TEST(StageForward, OneImageThatDoesNotFitIsAnError) {
  activations::CountingAllocator::install();
  Network network;
  activations::CountingAllocator& allocator =
      activations::CountingAllocator::instance();
  allocator.set_limit(allocator.live_bytes() + 1000);
  EXPECT_THROW(network.replica.network.run(network.batch), Error);
  allocator.set_limit(activations::CountingAllocator::kNoLimit);
}

struct Shared {
  std::string layout;
  int zero_stage = 0;
};

// One rank of several that share a network in evaluation.
class SharedNetwork {
 public:
  SharedNetwork(const Shared& of, collectives::Communicator& world)
      : plan_(plan_of(of)),
        mesh_(world, plan_.layout),
        table_(layers::load_model_table("yolov5n")),
        state_(table_, options_of(of)),
        context_(plan_, kImages, state_.model().max_stride(), mesh_,
                 state_.average_layer_executor()),
        network(state_.average_model(),
                routes_of_stage(state_.average_model(), plan_,
                                mesh_.here.pipeline_stage),
                mesh_, context_, at::kFloat, state_.average_layer_executor()) {
    configs::RunConfig config;
    config.image_height = config.image_width = 64;
    loader::LoaderOptions options = loader_options(config, state_.model());
    options.global_batch_size = options.micro_batch_size = kImages;
    options.own_rows = own_rows(mesh_, options.stride);
    batch = loader::SyntheticInput(options).next();
  }

  // Works as a run does: after a failure on any rank, all ranks connect again
  // and agree on the number of parts of the batch.
  std::vector<at::Tensor> run(collectives::CountingCommunicator& world,
                              RankGenerations& generations, int64_t& parts) {
    for (;;) {
      network.set_num_parts(parts);
      try {
        std::vector<at::Tensor> heads = network.run(batch);
        // One rank may be finished while another fails.
        world.barrier();
        return heads;
      } catch (const CommunicationError&) {
      } catch (const c10::OutOfMemoryError&) {
        parts = network.num_parts_after_failure();
      }
      mesh_.disconnect();
      world.disconnect();
      world.reconnect(generations.next(world.rank()));
      mesh_.reconnect();
      state_.abandon_step();
      world.all_reduce(at::from_blob(&parts, {1}, at::kLong),
                       collectives::ReduceOp::kMax);
    }
  }

 private:
  static constexpr int64_t kImages = 4;

  static plan::Plan plan_of(const Shared& of) {
    plan::Plan plan;
    plan.layout = plan::parse_layout(of.layout);
    plan.zero_stage = of.zero_stage;
    plan.micro_batch_size = plan.batch_norm_group_size = 2;
    if (plan.layout.pipeline_parallel_size == 2) plan.stage_begins = {0, 9};
    return plan;
  }
  TrainingStateOptions options_of(const Shared& of) {
    TrainingStateOptions options;
    options.num_classes = 1;
    options.zero_stage = of.zero_stage;
    options.mesh = &mesh_;
    options.layers =
        layers_of_stage(plan_, mesh_.here.pipeline_stage,
                        static_cast<int64_t>(table_.layers.size()));
    return options;
  }

  const plan::Plan plan_;
  collectives::Mesh mesh_;
  const layers::ModelTable table_;
  TrainingState state_;
  ParallelContext context_;

 public:
  StageForward network;
  loader::Batch batch;
};

class StageForwardOverRanks : public testing::TestWithParam<Shared> {};

// If any rank fails anywhere, all ranks repeat the batch and get the same bits.
TEST_P(StageForwardOverRanks, AFailureAnywhereIsTriedAgainTogether) {
  activations::CountingAllocator::install();
  const int ranks = plan::parse_layout(GetParam().layout).world_size();
  RankGenerations generations(ranks);
  run_ranks(ranks, [&](int rank, collectives::Communicator&) {
    collectives::CountingCommunicator world(generations.next(rank));
    SharedNetwork shared(GetParam(), world);
    activations::CountingAllocator& allocator =
        activations::CountingAllocator::instance();
    const int64_t before = allocator.allocations();
    const auto whole = shared.network.run(shared.batch);
    const int64_t allocations = allocator.allocations() - before;
    const int64_t live = allocator.live_bytes();
    constexpr int64_t kPoints = 9;
    for (int64_t point = 0; point < kPoints; ++point) {
      const bool fails = point % ranks == rank;
      if (fails) {
        activations::CountingAllocator::fail_allocation(
            1 + (allocations - 1) * point / (kPoints - 1));
      }
      int64_t parts = 0;
      const auto again = shared.run(world, generations, parts);
      EXPECT_LE(parts, 1) << "point " << point;
      EXPECT_EQ(activations::CountingAllocator::pending_failure(), 0)
          << "point " << point;
      ASSERT_EQ(again.size(), whole.size());
      for (size_t level = 0; level < whole.size(); ++level) {
        EXPECT_TRUE(at::equal(again[level], whole[level])) << point;
      }
    }
    EXPECT_EQ(allocator.live_bytes(), live) << "nothing is left";
  });
}

// In these layouts the memory is needed for maps, not for gathered weights, so
// smaller parts of the batch need less.
TEST(StageForward, OneRankWithoutRoomMakesAllGoThroughInParts) {
  activations::CountingAllocator::install();
  for (const Shared& layout : {Shared{"pipeline=2"}, Shared{"spatial=2"}}) {
    SCOPED_TRACE(layout.layout);
    RankGenerations generations(2);
    run_ranks(2, [&](int rank, collectives::Communicator&) {
      collectives::CountingCommunicator world(generations.next(rank));
      SharedNetwork shared(layout, world);
      activations::CountingAllocator& allocator =
          activations::CountingAllocator::instance();
      allocator.reset_peak();
      const int64_t live = allocator.live_bytes();
      const auto whole = shared.network.run(shared.batch);
      const int64_t needed = allocator.peak_bytes() - live;
      if (rank == 0) {
        allocator.set_limit(allocator.live_bytes() + needed * 4 / 5);
      }
      int64_t num_parts = 0;
      const auto parts = shared.run(world, generations, num_parts);
      allocator.set_limit(activations::CountingAllocator::kNoLimit);
      EXPECT_GT(num_parts, 1);
      ASSERT_EQ(parts.size(), whole.size());
      for (size_t level = 0; level < whole.size(); ++level) {
        EXPECT_TRUE(at::allclose(parts[level], whole[level], 1e-4, 1e-4));
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, StageForwardOverRanks,
    testing::Values(Shared{"pipeline=2"}, Shared{"spatial=2"},
                    Shared{"data=2", 3}, Shared{"data=2,spatial=2", 3},
                    Shared{"data=2,pipeline=2", 1}),
    [](const auto& info) {
      std::string name = info.param.layout;
      std::erase_if(name, [](char c) { return c == '=' || c == ','; });
      return name + "_zero" + std::to_string(info.param.zero_stage);
    });

// A replica without a batch gathers as often as the others.
TEST(StageForward, SkippingGathersForEveryPart) {
  activations::CountingAllocator::install();
  for (const int64_t parts : {0, 4}) {
    run_ranks(2, [&](int rank, collectives::Communicator& world) {
      SharedNetwork shared({"data=2", 3}, world);
      shared.network.set_num_parts(parts);
      if (rank == 1) {
        shared.network.skip();
        shared.network.run(shared.batch);
        return;
      }
      const auto first = shared.network.run(shared.batch);
      const auto second = shared.network.run(shared.batch);
      for (size_t level = 0; level < first.size(); ++level) {
        EXPECT_TRUE(at::equal(first[level], second[level]));
      }
    });
  }
}

}  // namespace
}  // namespace headroom::step
