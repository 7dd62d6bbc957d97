// Compares a detector that is cut into stages on local ranks with the undivided
// one in float64: losses, gradients and batch-norm sums.
#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/pipeline/executor.h"
#include "tests/support/run_ranks.h"
#include "tests/worker/model/tiny_table.h"
#include "worker/model/layer_graph.h"

namespace headroom::pipeline {
namespace {

constexpr int64_t kSize = 64;

// The images of a step, and fixed random weights by which the heads are
// multiplied to get the loss.
struct Batch {
  std::vector<at::Tensor> images;  // one tensor per micro-batch
  std::vector<std::vector<at::Tensor>> head_weights;
};

Batch make_batch(model::LayerGraph& graph, const std::vector<int64_t>& samples,
                 int64_t size = kSize) {
  at::manual_seed(5);
  const at::ScalarType type = graph.state().front().tensor->scalar_type();
  Batch batch;
  for (const int64_t count : samples) {
    batch.images.push_back(at::rand({count, 3, size, size}, type));
    const at::NoGradGuard no_grad;
    batch.head_weights.emplace_back();
    for (const at::Tensor& head :
         graph.forward(batch.images.back(), model::StepContext{}))
      batch.head_weights.back().push_back(at::randn_like(head));
  }
  return batch;
}

at::Tensor loss_of(const std::vector<at::Tensor>& heads,
                   const std::vector<at::Tensor>& weights) {
  at::Tensor loss = at::zeros({}, heads.front().options());
  for (size_t i = 0; i < heads.size(); ++i)
    loss = loss + (heads[i].sigmoid() * weights[i]).sum();
  return loss;
}

model::StepContext training(int64_t samples, const at::Tensor& sums) {
  model::StepContext context;
  context.training = true;
  if (samples > 0) context.groups = {{0, samples, samples, true}};
  context.batch_norm_sums = sums;
  return context;
}

class ModelStage final : public StageWork {
 public:
  ModelStage(model::LayerGraph& graph, const StageRoutes& routes,
             const Batch& batch)
      : graph_(graph), routes_(routes), batch_(batch) {
    sums = at::zeros({graph.batch_norm_sums_size()}, at::kDouble);
    for (const SentMap& map : routes.sent) wanted_.push_back(map.layer);
  }

  std::vector<at::Tensor> forward(int64_t micro_batch,
                                  std::vector<at::Tensor> received) override {
    const auto index = static_cast<size_t>(micro_batch);
    model::LayerGraph::LayerMaps maps;
    for (size_t i = 0; i < received.size(); ++i)
      maps[routes_.received[i].layer] = std::move(received[i]);
    const at::Tensor& images = batch_.images[index];
    std::vector<at::Tensor> outputs = graph_.forward_layers(
        std::move(maps), routes_.reads_images ? images : at::Tensor(),
        training(images.size(0), sums), wanted_);
    if (graph_.kept_layers().end < graph_.num_layers()) return outputs;
    const at::Tensor result = loss_of(outputs, batch_.head_weights[index]);
    loss += result.item<double>();
    return {result};
  }

  std::vector<int64_t> map_sizes(int64_t micro_batch, int layer) override {
    const at::Tensor& images = batch_.images[static_cast<size_t>(micro_batch)];
    const layers::MapShape& shape =
        graph_.map_shapes()[static_cast<size_t>(layer)];
    return {images.size(0), shape.channels, images.size(2) / shape.stride,
            images.size(3) / shape.stride};
  }

  void before_backward(int64_t, bool) override {}

  double loss = 0;
  at::Tensor sums;

 private:
  model::LayerGraph& graph_;
  const StageRoutes& routes_;
  const Batch& batch_;
  std::vector<int> wanted_;
};

struct Result {
  double loss = 0;
  std::map<std::string, at::Tensor> tensors;  // gradients, batch-norm sums
};

void add_result(model::LayerGraph& graph, const at::Tensor& sums,
                Result& result) {
  for (const model::NamedTensor& entry : graph.state())
    if (entry.is_parameter()) result.tensors[entry.name] = entry.tensor->grad();
  for (const model::LayerGraph::BatchNorm& norm : graph.batch_norms())
    result.tensors[norm.name + " sums"] =
        sums.narrow(0, norm.sums_offset, 2 * norm.channels);
}

Result undivided(model::LayerGraph& graph, const Batch& batch) {
  Result result;
  const at::Tensor sums =
      at::zeros({graph.batch_norm_sums_size()}, at::kDouble);
  for (size_t i = 0; i < batch.images.size(); ++i) {
    const at::Tensor loss = loss_of(
        graph.forward(batch.images[i], training(batch.images[i].size(0), sums)),
        batch.head_weights[i]);
    loss.backward();
    result.loss += loss.item<double>();
  }
  add_result(graph, sums, result);
  return result;
}

std::unique_ptr<model::LayerGraph> build(const layers::ModelTable& table,
                                         at::ScalarType type = at::kDouble) {
  return std::make_unique<model::LayerGraph>(table, 2, type, 1);
}

std::unique_ptr<model::LayerGraph> build_stage(
    const layers::ModelTable& table, const std::vector<int64_t>& stage_begins,
    int stage, at::ScalarType type = at::kDouble) {
  auto graph = build(table, type);
  const auto index = static_cast<size_t>(stage);
  graph->keep_layers({stage_begins[index], index + 1 < stage_begins.size()
                                               ? stage_begins[index + 1]
                                               : graph->num_layers()});
  return graph;
}

void expect_same(const layers::ModelTable& table,
                 const std::vector<int64_t>& stage_begins,
                 const std::vector<int64_t>& samples) {
  const auto whole = build(table);
  const Batch batch = make_batch(*whole, samples);
  const Result expected = undivided(*whole, batch);
  const std::vector<StageRoutes> routes =
      skip_routes(whole->inputs(), stage_begins);

  Result split;
  std::mutex mutex;
  const int num_stages = static_cast<int>(stage_begins.size());
  run_ranks(num_stages, [&](int rank, collectives::Communicator& communicator) {
    const auto graph = build_stage(table, stage_begins, rank);
    const StageRoutes& mine = routes[static_cast<size_t>(rank)];
    ModelStage stage(*graph, mine, batch);
    PipelineExecutor executor(communicator, PipelineSchedule::k1F1B, mine,
                              at::kDouble);
    executor.run(static_cast<int64_t>(samples.size()), stage);
    const std::lock_guard<std::mutex> lock(mutex);
    add_result(*graph, stage.sums, split);
    split.loss += stage.loss;
  });

  EXPECT_NEAR(split.loss, expected.loss, 1e-12 * std::abs(expected.loss));
  ASSERT_EQ(split.tensors.size(), expected.tensors.size());
  for (const auto& [name, wanted] : expected.tensors) {
    const at::Tensor& found = split.tensors.at(name);
    ASSERT_TRUE(found.defined()) << name;
    EXPECT_LE((found - wanted).norm().item<double>(),
              1e-11 * wanted.norm().item<double>())
        << name;
  }
}

TEST(ModelPipeline, TinyModelInTwoStagesAtEveryCut) {
  for (int64_t cut = 1; cut < 9; ++cut)
    expect_same(model::tiny_table(), {0, cut}, {2, 3, 2});
}

TEST(ModelPipeline, TinyModelInThreeAndFourStages) {
  expect_same(model::tiny_table(), {0, 2, 5}, {2, 2, 2, 1});
  expect_same(model::tiny_table(), {0, 1, 3, 7}, {1, 2, 3});
  expect_same(model::tiny_table(), {0, 3, 4, 8}, {2});
}

TEST(ModelPipeline, MicroBatchesWithoutSamples) {
  expect_same(model::tiny_table(), {0, 2, 5}, {2, 0});
  expect_same(model::tiny_table(), {0, 3}, {0, 2, 0});
}

TEST(ModelPipeline, Yolov5n) {
  const layers::ModelTable table = layers::load_model_table("yolov5n");
  expect_same(table, {0, 5}, {1, 2});
  expect_same(table, {0, 3, 10}, {2, 1, 2});
  expect_same(table, {0, 2, 7, 17}, {1, 1, 2});
}

// The peak bytes of a step in addition to those between steps.
int64_t peak_of(const std::function<void()>& step) {
  activations::CountingAllocator& allocator =
      activations::CountingAllocator::instance();
  step();  // the first step allocates the gradients
  const int64_t before = allocator.live_bytes();
  allocator.reset_peak();
  step();
  return allocator.peak_bytes() - before;
}

// Two stages and four micro-batches. The cut lets both stages need about the
// same bytes: the first stage holds its layers' activations of two
// micro-batches, the second stage those of one.
TEST(ModelPipeline, StagesNeedLessMemoryThanOneProcess) {
  activations::CountingAllocator::install();
  const layers::ModelTable table = layers::load_model_table("yolov5n");
  const std::vector<int64_t> samples = {1, 1, 1, 1};
  const std::vector<int64_t> stage_begins = {0, 3};
  std::unique_ptr<model::LayerGraph> whole;
  Batch batch;
  int64_t one_process = 0;
  // Ranks are threads, and each has its own count.
  run_ranks(1, [&](int, collectives::Communicator&) {
    activations::CountingAllocator::count_separately();
    whole = build(table, at::kFloat);
    batch = make_batch(*whole, samples, 3 * kSize);
    one_process = peak_of([&] { undivided(*whole, batch); });
  });
  const std::vector<StageRoutes> routes =
      skip_routes(whole->inputs(), stage_begins);
  std::vector<int64_t> peaks(2, 0);
  run_ranks(2, [&](int rank, collectives::Communicator& communicator) {
    activations::CountingAllocator::count_separately();
    const auto graph = build_stage(table, stage_begins, rank, at::kFloat);
    const StageRoutes& mine = routes[static_cast<size_t>(rank)];
    ModelStage stage(*graph, mine, batch);
    PipelineExecutor executor(communicator, PipelineSchedule::k1F1B, mine,
                              at::kFloat);
    peaks[static_cast<size_t>(rank)] = peak_of([&] { executor.run(4, stage); });
  });
  std::printf("bytes beyond parameters and gradients: %lld and %lld of %lld\n",
              static_cast<long long>(peaks[0]),
              static_cast<long long>(peaks[1]),
              static_cast<long long>(one_process));
  for (const int64_t peak : peaks)
    EXPECT_LE(static_cast<double>(peak),
              0.85 * static_cast<double>(one_process));
}

}  // namespace
}  // namespace headroom::pipeline
