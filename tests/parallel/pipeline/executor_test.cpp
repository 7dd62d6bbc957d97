// Compares the executor with local ranks to one undivided graph, in float64.
#include "parallel/pipeline/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <new>
#include <optional>

#include "parallel/base/check.h"
#include "parallel/collectives/counting_communicator.h"
#include "tests/parallel/pipeline/toy_stage.h"
#include "tests/support/run_ranks.h"

namespace headroom::pipeline {
namespace {

using Kind = Instruction::Kind;

// A small graph with YOLOv5's structure: skips cross one cut or two cuts, and
// one map is read by two later stages.
RandomPipeline neck(std::vector<int64_t> stage_begins,
                    int64_t num_micro_batches,
                    PipelineSchedule kind = PipelineSchedule::k1F1B) {
  RandomPipeline pipeline;
  pipeline.kind = kind;
  pipeline.num_micro_batches = num_micro_batches;
  pipeline.inputs = {{-1}, {0}, {1}, {2}, {3}, {4, 1}, {5, 2}, {6, 3, 1}};
  pipeline.stage_begins = std::move(stage_begins);
  return pipeline;
}

void expect_gradients(const ToyStage& stage,
                      const std::vector<at::Tensor>& wanted, double tolerance,
                      const std::string& where) {
  for (int layer = stage.begin(); layer < stage.end(); ++layer) {
    const auto index = static_cast<size_t>(layer);
    const at::Tensor& gradient = stage.weights()[index].grad();
    ASSERT_TRUE(gradient.defined()) << where << ", layer " << layer;
    EXPECT_LE((gradient - wanted[index]).norm().item<double>(),
              tolerance * wanted[index].norm().item<double>())
        << where << ", layer " << layer;
  }
}

// Runs one step of all stages and compares it with the undivided graph.
void expect_equal_to_one_process(const RandomPipeline& pipeline, uint32_t seed,
                                 bool with_empty_ones,
                                 const RankOptions& options = {}) {
  const ToyBatch batch =
      toy_batch(seed, pipeline.num_micro_batches, with_empty_ones);
  const size_t num_layers = pipeline.inputs.size();
  const std::vector<at::Tensor> wanted =
      undivided_gradients(pipeline, batch, toy_weights(seed, num_layers));
  const std::string where = "seed " + std::to_string(seed);
  run_ranks(
      pipeline.num_stages(),
      [&](int rank, collectives::Communicator& communicator) {
        ToyStage stage(pipeline, rank, batch, toy_weights(seed, num_layers));
        PipelineExecutor executor(communicator, pipeline.kind, stage.routes(),
                                  at::kDouble);
        executor.run(pipeline.num_micro_batches, stage);
        expect_gradients(stage, wanted, 1e-13, where);
        // The largest number of micro-batches in flight is the schedule's, and
        // none is in flight after the step.
        EXPECT_EQ(stage.most_alive,
                  max_in_flight(pipeline.kind, pipeline.num_stages(),
                                pipeline.num_micro_batches, rank))
            << where << ", stage " << rank;
        EXPECT_EQ(stage.num_alive(), 0) << where << ", stage " << rank;
        std::vector<bool> flags(static_cast<size_t>(pipeline.num_micro_batches),
                                false);
        flags.back() = true;
        EXPECT_EQ(stage.last_flags, flags);
      },
      options);
}

TEST(Executor, GradientsAreThoseOfOneProcess) {
  for (const auto kind : {PipelineSchedule::k1F1B, PipelineSchedule::kGPipe})
    for (const std::vector<int64_t>& stage_begins :
         std::vector<std::vector<int64_t>>{
             {0}, {0, 3}, {0, 2, 5}, {0, 2, 4, 7}, {0, 1, 3, 5, 6}})
      for (const int64_t num_micro_batches : {1, 2, 5})
        expect_equal_to_one_process(neck(stage_begins, num_micro_batches, kind),
                                    7, false);
}

TEST(Executor, RandomGraphsCutsAndSizes) {
  for (uint32_t seed = 0; seed < 25; ++seed)
    expect_equal_to_one_process(random_pipeline(seed), seed, false);
}

TEST(Executor, MicroBatchesWithoutSamples) {
  for (uint32_t seed = 40; seed < 52; ++seed)
    expect_equal_to_one_process(random_pipeline(seed), seed, true);
}

TEST(Executor, OverGloo) {
  RankOptions options;
  options.backend = RankBackend::kNetwork;
  expect_equal_to_one_process(neck({0, 2, 5}, 4), 3, false, options);
  expect_equal_to_one_process(neck({0, 2, 4, 7}, 3), 4, true, options);
}

// The layers of the first stage need no gradients, so there is nothing to
// compute backward for them, but the stage must still receive the gradients
// that are sent to it.
TEST(Executor, AFrozenStageStillTakesItsGradients) {
  const RandomPipeline pipeline = neck({0, 3, 6}, 3);
  const ToyBatch batch = toy_batch(1, 3, false);
  const std::vector<at::Tensor> wanted =
      undivided_gradients(pipeline, batch, toy_weights(1, 8));
  run_ranks(3, [&](int rank, collectives::Communicator& communicator) {
    std::vector<at::Tensor> weights = toy_weights(1, 8);
    for (size_t layer = 0; layer < 3; ++layer)
      weights[layer].set_requires_grad(false);
    ToyStage stage(pipeline, rank, batch, weights);
    PipelineExecutor executor(communicator, pipeline.kind, stage.routes(),
                              at::kDouble);
    executor.run(3, stage);
    if (rank > 0) expect_gradients(stage, wanted, 1e-13, "frozen");
    EXPECT_EQ(weights[0].grad().defined(), false);
  });
}

// In an evaluation, the losses are those of the undivided graph, nothing is
// kept for autograd, and no more than the maps of one step are held.
class EvaluatingStage final : public ToyStage {
 public:
  using ToyStage::ToyStage;
  std::vector<at::Tensor> forward(int64_t micro_batch,
                                  std::vector<at::Tensor> received) override {
    EXPECT_FALSE(c10::GradMode::is_enabled());
    std::vector<at::Tensor> outputs =
        ToyStage::forward(micro_batch, std::move(received));
    if (!routes().sent.empty()) return outputs;
    losses.push_back(outputs.front().item<double>());
    return {};
  }
  std::vector<double> losses;
};

TEST(Executor, ForwardOnly) {
  for (const RankBackend backend :
       {RankBackend::kLocal, RankBackend::kNetwork}) {
    RandomPipeline pipeline =
        neck({0, 2, 5}, 6, PipelineSchedule::kForwardOnly);
    const ToyBatch batch = toy_batch(9, 6, true);
    RandomPipeline whole = pipeline;
    whole.stage_begins = {0};
    const auto alone = collectives::make_single_communicator();
    EvaluatingStage expected(whole, 0, batch, toy_weights(9, 8));
    PipelineExecutor(*alone, pipeline.kind, {}, at::kDouble).run(6, expected);
    ASSERT_EQ(expected.losses.size(), 6u);
    EXPECT_NE(expected.losses[1], 0);
    RankOptions options;
    options.backend = backend;
    run_ranks(
        3,
        [&](int rank, collectives::Communicator& communicator) {
          EvaluatingStage stage(pipeline, rank, batch, toy_weights(9, 8));
          PipelineExecutor executor(communicator, pipeline.kind, stage.routes(),
                                    at::kDouble);
          executor.run(6, stage);
          EXPECT_TRUE(stage.last_flags.empty());
          if (rank == 2) {
            EXPECT_EQ(stage.losses, expected.losses);
          }
        },
        options);
  }
}

// A stage that runs out of memory in one of its instructions.
class FailingStage final : public ToyStage {
 public:
  using ToyStage::ToyStage;

  std::vector<at::Tensor> forward(int64_t micro_batch,
                                  std::vector<at::Tensor> received) override {
    fail_at({Kind::kForward, micro_batch});
    return ToyStage::forward(micro_batch, std::move(received));
  }
  void before_backward(int64_t micro_batch, bool is_last) override {
    fail_at({Kind::kBackward, micro_batch});
    ToyStage::before_backward(micro_batch, is_last);
  }
  std::optional<Instruction> failure;
  // Throws std::bad_alloc instead of the allocator's error.
  bool is_of_host = false;

 private:
  void fail_at(const Instruction& instruction) {
    if (failure != instruction) return;
    if (is_of_host) throw std::bad_alloc();
    TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory for the test");
  }
};

// Stage `failing` fails in its instruction number `at`. The other stages notice
// that it is gone, all connect again, and the repeated step is right.
void expect_recovery(const RandomPipeline& pipeline, int failing, size_t at,
                     const RankOptions& options = {}) {
  const int num_stages = pipeline.num_stages();
  const int64_t count = pipeline.num_micro_batches;
  const size_t num_layers = pipeline.inputs.size();
  const ToyBatch batch = toy_batch(2, count, false);
  const std::vector<at::Tensor> wanted =
      undivided_gradients(pipeline, batch, toy_weights(2, num_layers));
  const auto list = schedule(pipeline.kind, num_stages, count, failing);
  RankGenerations generations(num_stages, options);
  run_ranks(
      num_stages,
      [&](int rank, collectives::Communicator&) {
        collectives::CountingCommunicator stages(generations.next(rank));
        FailingStage stage(pipeline, rank, batch, toy_weights(2, num_layers));
        if (rank == failing) stage.failure = list[at];
        stage.is_of_host = at % 2 == 1;
        PipelineExecutor executor(stages, pipeline.kind, stage.routes(),
                                  at::kDouble);
        if (rank != failing) {
          // A stage may have finished before the other failed.
          try {
            executor.run(count, stage);
          } catch (const CommunicationError&) {
          }
        } else if (stage.is_of_host) {
          EXPECT_THROW(executor.run(count, stage), std::bad_alloc);
        } else {
          EXPECT_THROW(executor.run(count, stage), c10::OutOfMemoryError);
        }
        EXPECT_EQ(stage.num_alive(), 0);
        stages.disconnect();
        stages.reconnect(generations.next(rank));
        stage.failure.reset();
        for (const at::Tensor& weight : stage.weights())
          if (weight.grad().defined()) weight.mutable_grad().reset();
        executor.run(count, stage);
        expect_gradients(stage, wanted, 1e-13, "after a failure");
      },
      options);
}

TEST(Executor, AfterAStageWithoutMemoryTheStepIsRightOverNewConnections) {
  for (int failing = 0; failing < 3; ++failing)
    for (size_t at = 0; at < 8; ++at)
      expect_recovery(neck({0, 2, 5}, 4), failing, at);
  for (uint32_t seed = 0; seed < 15; ++seed) {
    const RandomPipeline pipeline = random_pipeline(seed);
    expect_recovery(pipeline, static_cast<int>(seed) % pipeline.num_stages(),
                    seed % static_cast<size_t>(2 * pipeline.num_micro_batches));
  }
  RankOptions options;
  options.backend = RankBackend::kNetwork;
  for (int failing = 0; failing < 3; ++failing)
    expect_recovery(neck({0, 2, 5}, 3), failing, 2, options);
}

// On any other error, a rank leaves at once; the other ranks detect a lost
// peer.
TEST(Executor, AStageThatLeavesReleasesTheOthers) {
  const RandomPipeline pipeline = neck({0, 2, 5}, 4);
  const ToyBatch batch = toy_batch(2, 4, false);
  class Leaving final : public ToyStage {
   public:
    using ToyStage::ToyStage;
    void before_backward(int64_t, bool) override {
      throw Error("test", "a broken stage", "none");
    }
  };
  std::mutex mutex;
  int num_freed = 0;
  EXPECT_THROW(
      run_ranks(3,
                [&](int rank, collectives::Communicator& communicator) {
                  const auto weights = toy_weights(2, 8);
                  ToyStage whole(pipeline, rank, batch, weights);
                  Leaving leaving(pipeline, rank, batch, weights);
                  PipelineExecutor executor(communicator, pipeline.kind,
                                            whole.routes(), at::kDouble);
                  try {
                    if (rank == 1)
                      executor.run(4, leaving);
                    else
                      executor.run(4, whole);
                  } catch (const CommunicationError&) {
                    const std::lock_guard<std::mutex> lock(mutex);
                    ++num_freed;
                  }
                }),
      Error);
  EXPECT_EQ(num_freed, 2);
}

class WrongStage final : public StageWork {
 public:
  std::vector<at::Tensor> forward(int64_t, std::vector<at::Tensor>) override {
    return {at::ones({2}, at::kDouble)};
  }
  std::vector<int64_t> map_sizes(int64_t, int) override { return {}; }
  void before_backward(int64_t, bool) override {}
};

TEST(Executor, ALossThatIsNoScalarIsAProgrammersError) {
  const auto alone = collectives::make_single_communicator();
  PipelineExecutor executor(*alone, PipelineSchedule::k1F1B, {}, at::kDouble);
  WrongStage stage;
  EXPECT_THROW(executor.run(1, stage), CheckFailure);
}

// Backward does not need a map that is only concatenated, so the map is freed.
TEST(StageBoundary, AReceivedMapIsFreedUnlessAutogradSavedIt) {
  for (const bool is_saved : {false, true}) {
    const auto gradient = std::make_shared<MapGradient>();
    const at::Tensor other = at::ones({1, 2, 2, 2}, at::kDouble);
    at::Tensor result;
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;
    {
      const at::Tensor map =
          received_map(at::ones({1, 2, 2, 2}, at::kDouble) * 3, gradient);
      storage = map.storage().getWeakStorageImpl();
      result = at::cat({is_saved ? map * map : map, other}, 1);
    }
    EXPECT_EQ(storage->expired(), !is_saved);
    result.sum().backward();
    ASSERT_TRUE(gradient->value.defined());
    EXPECT_EQ(gradient->value.sum().item<double>(), is_saved ? 48 : 8);
  }
}

TEST(StageBoundary, AReceivedMapSumsOverItsReaders) {
  const auto gradient = std::make_shared<MapGradient>();
  const at::Tensor map =
      received_map(at::ones({1, 1, 2, 2}, at::kDouble), gradient);
  (map * 2 + map * 3).sum().backward();
  EXPECT_EQ(gradient->value.sum().item<double>(), 20);
}

TEST(StageBoundary, ASentMapHandsOverItsGradient) {
  const at::Tensor weight = at::ones({3}, at::kDouble).set_requires_grad(true);
  const auto gradient = std::make_shared<MapGradient>();
  const at::Tensor end = sent_map(weight * 2, gradient);
  EXPECT_EQ(end.numel(), 1);
  gradient->value = at::ones({3}, at::kDouble) * 5;
  end.backward();
  EXPECT_FALSE(gradient->value.defined());
  EXPECT_EQ(weight.grad().sum().item<double>(), 30);
  EXPECT_FALSE(sent_map(at::ones({3}, at::kDouble), gradient).defined());
}

}  // namespace
}  // namespace headroom::pipeline
