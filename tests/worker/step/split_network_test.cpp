// The whole network on images whose rows are split over ranks: with rows split
// only, with samples split too, and with layers that run again. Losses, all
// gradients and decoded boxes equal those of whole images in one process.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/collectives/mesh.h"
#include "parallel/data_parallel/communicator_exchange.h"
#include "parallel/spatial/halo_exchange.h"
#include "tests/support/parity.h"
#include "tests/support/run_ranks.h"
#include "worker/loss/detection_loss.h"
#include "worker/model/layer_graph.h"
#include "worker/step/apply_plan.h"

namespace headroom::step {
namespace {

constexpr int64_t kImages = 3, kHeight = 96, kWidth = 128, kStride = 32;
constexpr int64_t kLayers = 25;  // the layers of yolov5n's table
constexpr double kTolerance = 1e-9;

// Boxes of every size, also on the cuts between rows of blocks and at the
// edges; one image is empty.
const std::vector<loss::LabelRow>& labels() {
  static const std::vector<loss::LabelRow> kLabels = {
      {0, 0, .30, .33, .20, .25},  {0, 7, .62, .66, .50, .40},
      {0, 79, .1, 1. / 3, .1, .1}, {2, 1, .5, .5, .9, .9},
      {2, 0, .999, .02, .05, .06}, {2, 3, .45, .99, .1, .12},
      {2, 3, .45, .99, .11, .12},  {2, 5, .7, 2. / 3, .15, .3}};
  return kLabels;
}

std::unique_ptr<model::LayerGraph> filled_graph() {
  auto graph = std::make_unique<model::LayerGraph>(
      layers::load_model_table("yolov5n"), 80, at::kDouble, 0);
  fill_model(graph->state());
  for (const model::NamedTensor& entry : graph->state())
    if (entry.is_parameter()) entry.tensor->requires_grad_(true);
  return graph;
}

// Targets of images [begin, end).
std::vector<loss::LevelTargets> targets_of(const model::LayerGraph& graph,
                                           int64_t begin, int64_t end) {
  std::vector<loss::LevelGrid> grids;
  for (const model::LayerGraph::Level& level : graph.levels()) {
    loss::LevelGrid grid{kHeight / level.stride, kWidth / level.stride, {}};
    for (const auto& [w, h] : level.anchors)
      grid.anchors.emplace_back(w / static_cast<double>(level.stride),
                                h / static_cast<double>(level.stride));
    grids.push_back(grid);
  }
  std::vector<loss::LabelRow> own;
  for (loss::LabelRow label : labels()) {
    if (label.image < begin || label.image >= end) continue;
    label.image -= begin;
    own.push_back(label);
  }
  return loss::assign_targets(own, grids, 4, at::kDouble);
}

loss::GlobalCounts global_counts(const model::LayerGraph& graph) {
  loss::GlobalCounts counts{kImages, {}};
  for (const loss::LevelTargets& level : targets_of(graph, 0, kImages))
    counts.matches.push_back(level.size());
  for (const model::LayerGraph::Level& level : graph.levels())
    counts.global_rows.push_back(kHeight / level.stride);
  return counts;
}

at::Tensor images() {
  return rule_input("A", kImages, kHeight, kWidth, at::kDouble);
}

// Returns the context of a rank that has the images [begin, end). Its
// batch-norm groups are those of the whole batch.
model::StepContext training_context(const model::LayerGraph& graph,
                                    const std::vector<int64_t>& group_sizes,
                                    int64_t begin, int64_t end) {
  model::StepContext context;
  context.training = true;
  int64_t first = 0;
  for (const int64_t size : group_sizes) {
    context.groups.push_back({std::clamp(first, begin, end) - begin,
                              std::clamp(first + size, begin, end) - begin,
                              size, true});
    first += size;
  }
  context.batch_norm_sums =
      at::zeros({graph.batch_norm_sums_size()}, at::kDouble);
  return context;
}

struct Outcome {
  double total = 0;
  at::Tensor items, batch_norm_sums;
  std::vector<std::string> names;
  std::vector<at::Tensor> gradients;
  at::Tensor boxes;            // decoded in evaluation
  int64_t num_layer_runs = 0;  // counted if layers are recomputed
  int64_t halo_bytes = 0;      // sent along the spatial axis, in training
};

// Runs forward, loss and backward on the rank's rows of the images; the rows
// around them come from the neighbours.
Outcome run(model::LayerGraph& graph, const at::Tensor& rows,
            const model::StepContext& context,
            const std::vector<loss::LevelTargets>& targets,
            const loss::GlobalCounts& counts) {
  const loss::LossGains gains = loss::scale_gains({}, 3, 80, kWidth, 0);
  Outcome outcome;
  const loss::DetectionLoss loss = loss::detection_loss(
      graph.forward(rows, context), targets, counts, gains);
  loss.total.backward();
  outcome.total = loss.total.item<double>();
  outcome.items = loss.items;
  outcome.batch_norm_sums = context.batch_norm_sums;
  for (const model::NamedTensor& entry : graph.state()) {
    if (!entry.is_parameter()) continue;
    outcome.names.push_back(entry.name);
    outcome.gradients.push_back(entry.tensor->grad());
  }
  return outcome;
}

at::Tensor decoded(model::LayerGraph& graph, const at::Tensor& rows,
                   HaloExchange* halo, const std::vector<int64_t>& first_rows) {
  const at::NoGradGuard no_grad;
  model::StepContext evaluation;
  evaluation.halo = halo;
  return graph.decode(graph.forward(rows, evaluation), first_rows);
}

Outcome run_whole(const std::vector<int64_t>& group_sizes) {
  at::set_num_threads(1);
  const auto graph = filled_graph();
  loss::GlobalCounts counts = global_counts(*graph);
  counts.global_rows = {};
  Outcome outcome =
      run(*graph, images(), training_context(*graph, group_sizes, 0, kImages),
          targets_of(*graph, 0, kImages), counts);
  outcome.boxes = decoded(*graph, images(), nullptr, {});
  return outcome;
}

struct Layout {
  int data = 1;
  int spatial = 1;
  std::vector<int64_t> group_sizes = {2, 1};
  // Layers take these in turn; if empty, there is no runner.
  std::vector<plan::ActivationPolicy> policies = {};
};

// Counts how often layers run.
class CountingRunner final : public model::LayerExecutor {
 public:
  explicit CountingRunner(const std::vector<plan::ActivationPolicy>& policies)
      : activations_(options_of(policies)) {}
  std::vector<at::Tensor> run(int64_t index, model::Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override {
    layers_.push_back(std::make_unique<CountedLayer>(layer, num_runs));
    return activations_.run(index, *layers_.back(), inputs, context);
  }
  int64_t num_runs = 0;

 private:
  struct CountedLayer final : model::Layer {
    CountedLayer(model::Layer& inner, int64_t& count)
        : inner(inner), count(count) {}
    std::vector<at::Tensor> forward(
        const std::vector<at::Tensor>& inputs,
        const model::StepContext& context) override {
      ++count;
      return inner.forward(inputs, context);
    }
    layers::LayerInside inside() const override { return inner.inside(); }
    model::Layer& inner;
    int64_t& count;
  };
  static ActivationRunner::Options options_of(
      const std::vector<plan::ActivationPolicy>& policies) {
    ActivationRunner::Options options;
    for (size_t layer = 0; layer < size_t{kLayers} && !policies.empty();
         ++layer)
      options.policies.push_back(policies[layer % policies.size()]);
    return options;
  }
  ActivationRunner activations_;
  std::vector<std::unique_ptr<CountedLayer>> layers_;  // until backward is done
};

// The first data rank has the first two images.
Outcome run_rank(const Layout& layout, collectives::Communicator& world) {
  collectives::Mesh mesh(world, {1, layout.data, layout.spatial});
  const int rank = mesh.here.spatial_rank;
  const int64_t begin = mesh.here.data_parallel_rank == 0 ? 0 : 2;
  const int64_t end = begin == 0 && layout.data > 1 ? 2 : kImages;
  const spatial::ImageSplit partition(kHeight, kStride, layout.spatial);
  data_parallel::CommunicatorExchange exchange(*mesh.statistics);
  spatial::CommunicatorHaloExchange halo(*mesh.spatial, partition);

  const auto graph = filled_graph();
  model::StepContext context =
      training_context(*graph, layout.group_sizes, begin, end);
  context.exchange = &exchange;
  context.halo = &halo;
  CountingRunner runner(layout.policies);
  if (!layout.policies.empty()) context.runner = &runner;
  for (BatchNormGroup& group : context.groups)
    group.counts_here = world.rank() == 0;

  std::vector<loss::LevelTargets> targets = targets_of(*graph, begin, end);
  std::vector<int64_t> first_rows;
  for (const model::LayerGraph::Level& level : graph->levels()) {
    const spatial::RowRange rows =
        partition.rows_of(rank, kStride / level.stride);
    loss::LevelTargets& own = targets[first_rows.size()];
    own = loss::targets_of_rows(own, rows.begin, rows.size());
    first_rows.push_back(rows.begin);
  }
  const spatial::RowRange rows = partition.image_rows_of(rank);
  const at::Tensor own_images =
      images().slice(0, begin, end).slice(2, rows.begin, rows.end);
  Outcome outcome =
      run(*graph, own_images, context, targets, global_counts(*graph));
  outcome.halo_bytes = mesh.spatial->bytes();
  outcome.num_layer_runs = runner.num_runs;
  outcome.boxes = decoded(*graph, own_images, &halo, first_rows);
  return outcome;
}

std::vector<Outcome> run_layout(const Layout& layout) {
  std::vector<Outcome> parts(static_cast<size_t>(layout.data * layout.spatial));
  run_ranks(layout.data * layout.spatial,
            [&](int rank, collectives::Communicator& world) {
              parts[static_cast<size_t>(rank)] = run_rank(layout, world);
            });
  return parts;
}

Outcome sum_of(const std::vector<Outcome>& parts) {
  Outcome sum = parts[0];
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    sum.total += parts[rank].total;
    sum.items = sum.items + parts[rank].items;
    sum.batch_norm_sums = sum.batch_norm_sums + parts[rank].batch_norm_sums;
    for (size_t i = 0; i < sum.gradients.size(); ++i)
      sum.gradients[i] = sum.gradients[i] + parts[rank].gradients[i];
  }
  return sum;
}

// Joins the boxes [N, rows, fields] of all ranks, ordered by their places in
// each level.
at::Tensor joined_boxes(const std::vector<Outcome>& parts) {
  std::vector<at::Tensor> levels;
  std::vector<int64_t> begins(parts.size(), 0);
  for (const int64_t stride : {8, 16, 32}) {
    std::vector<at::Tensor> maps;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const int64_t height =
          spatial::ImageSplit(kHeight, kStride, static_cast<int>(parts.size()))
              .rows_of(static_cast<int>(rank), kStride / stride)
              .size();
      const int64_t width = kWidth / stride;
      const int64_t count = 3 * height * width;
      maps.push_back(parts[rank]
                         .boxes.narrow(1, begins[rank], count)
                         .view({-1, 3, height, width, 85}));
      begins[rank] += count;
    }
    levels.push_back(at::cat(maps, 2).flatten(1, 3));
  }
  return at::cat(levels, 1);
}

double largest_difference(const at::Tensor& actual,
                          const at::Tensor& expected) {
  if (actual.sizes() != expected.sizes()) return INFINITY;
  return (actual - expected).abs().max().item<double>() /
         std::max(expected.abs().max().item<double>(), 1e-30);
}

void expect_equal_to_whole(const Layout& layout) {
  SCOPED_TRACE(std::to_string(layout.data) + " x " +
               std::to_string(layout.spatial) + " ranks");
  const Outcome whole = run_whole(layout.group_sizes);
  ASSERT_GT(whole.items[0].item<double>(), 0);
  const std::vector<Outcome> parts = run_layout(layout);
  const Outcome sum = sum_of(parts);
  EXPECT_NEAR(sum.total, whole.total, kTolerance * whole.total);
  EXPECT_LE(largest_difference(sum.items, whole.items), kTolerance);
  EXPECT_LE(largest_difference(sum.batch_norm_sums, whole.batch_norm_sums),
            kTolerance);
  double worst = 0;
  for (size_t i = 0; i < sum.gradients.size(); ++i) {
    const double difference =
        largest_difference(sum.gradients[i], whole.gradients[i]);
    EXPECT_LE(difference, kTolerance) << whole.names[i];
    worst = std::max(worst, difference);
  }
  std::printf(
      "data %d x spatial %d: gradients differ by %.1e at most, rank 0 "
      "sends %.2f MB of rows\n",
      layout.data, layout.spatial, worst,
      static_cast<double>(parts[0].halo_bytes) / 1e6);
  std::vector<at::Tensor> boxes;
  for (size_t first = 0; first < parts.size();
       first += static_cast<size_t>(layout.spatial))
    boxes.push_back(joined_boxes(std::vector<Outcome>(
        parts.begin() + static_cast<std::ptrdiff_t>(first),
        parts.begin() + static_cast<std::ptrdiff_t>(first) + layout.spatial)));
  EXPECT_LE(largest_difference(at::cat(boxes), whole.boxes), kTolerance);
}

TEST(SplitNetwork, EqualsWholeImages) {
  expect_equal_to_whole({1, 2, {2, 1}});
  expect_equal_to_whole({1, 3, {2, 1}});
}

// A group may be on one data rank or on both; neighbours share the same
// samples.
TEST(SplitNetwork, EqualsWholeImagesWithSamplesSplitToo) {
  expect_equal_to_whole({2, 2, {2, 1}});
  expect_equal_to_whole({2, 2, {3}});
}

// Whether maps are derived, recomputed or read from a file, every bit is equal,
// and nothing more is exchanged, neither statistics nor rows around maps.
TEST(SplitNetwork, ActivationPoliciesAreIdenticalAndSendNothingMore) {
  activations::install_saved_tensor_policies();
  using enum plan::ActivationPolicy;
  constexpr int64_t kLayersWithConvolutions = 18;  // the head keeps its inputs
  const std::vector<Outcome> kept = run_layout({1, 2, {2, 1}});
  EXPECT_GT(kept[0].halo_bytes, 0);
  for (const std::vector<plan::ActivationPolicy>& policies :
       {std::vector{kLean},
        {kRecompute},
        {kKeep, kLean, kRecompute, kOffload}}) {
    const std::vector<Outcome> less = run_layout({1, 2, {2, 1}, policies});
    for (size_t rank = 0; rank < kept.size(); ++rank) {
      if (policies.size() == 1) {
        EXPECT_EQ(
            less[rank].num_layer_runs,
            policies[0] == kLean ? kLayers : kLayers + kLayersWithConvolutions);
      }
      EXPECT_EQ(less[rank].halo_bytes, kept[rank].halo_bytes);
      EXPECT_EQ(less[rank].total, kept[rank].total);
      EXPECT_TRUE(
          at::equal(less[rank].batch_norm_sums, kept[rank].batch_norm_sums));
      for (size_t i = 0; i < kept[rank].gradients.size(); ++i)
        EXPECT_TRUE(at::equal(less[rank].gradients[i], kept[rank].gradients[i]))
            << kept[rank].names[i];
    }
  }
}

}  // namespace
}  // namespace headroom::step
