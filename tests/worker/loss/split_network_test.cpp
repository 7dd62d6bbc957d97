// The whole network on images whose rows are split over ranks: losses, all
// gradients and decoded boxes as of whole images.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "configs/model_table.h"
#include "parallel/data_parallel/communicator_exchange.h"
#include "parallel/spatial/halo_exchange.h"
#include "tests/support/parity.h"
#include "tests/support/run_ranks.h"
#include "worker/loss/detection_loss.h"
#include "worker/model/layer_graph.h"

namespace headroom {
namespace {

constexpr int64_t kImages = 3, kHeight = 96, kWidth = 128, kStride = 32;
constexpr double kTolerance = 1e-9;

// Boxes of every size, also on the cuts between rows of blocks and at the
// edges; one image is empty.
const std::vector<LabelRow>& labels() {
  static const std::vector<LabelRow> kLabels = {
      {0, 0, .30, .33, .20, .25},  {0, 7, .62, .66, .50, .40},
      {0, 79, .1, 1. / 3, .1, .1}, {2, 1, .5, .5, .9, .9},
      {2, 0, .999, .02, .05, .06}, {2, 3, .45, .99, .1, .12},
      {2, 3, .45, .99, .11, .12},  {2, 5, .7, 2. / 3, .15, .3}};
  return kLabels;
}

std::unique_ptr<LayerGraph> filled_graph() {
  auto graph = std::make_unique<LayerGraph>(load_model_table("yolov5n"), 80,
                                            at::kDouble, 0);
  fill_model(graph->state());
  for (const NamedTensor& entry : graph->state())
    if (entry.is_parameter()) entry.tensor->requires_grad_(true);
  return graph;
}

std::vector<LevelTargets> whole_targets(const LayerGraph& graph) {
  std::vector<LevelGrid> grids;
  for (const LayerGraph::Level& level : graph.levels()) {
    LevelGrid grid{kHeight / level.stride, kWidth / level.stride, {}};
    for (const auto& [w, h] : level.anchors)
      grid.anchors.emplace_back(w / static_cast<double>(level.stride),
                                h / static_cast<double>(level.stride));
    grids.push_back(grid);
  }
  return assign_targets(labels(), grids, 4, at::kDouble);
}

at::Tensor images() {
  return rule_input("A", kImages, kHeight, kWidth, at::kDouble);
}

StepContext training_context(const LayerGraph& graph) {
  StepContext context;
  context.training = true;
  context.groups = {{0, 2, 2, true}, {2, 3, 1, true}};
  context.batch_norm_sums =
      at::zeros({graph.batch_norm_sums_size()}, at::kDouble);
  return context;
}

struct Outcome {
  double total = 0;
  at::Tensor items, batch_norm_sums;
  std::vector<std::string> names;
  std::vector<at::Tensor> gradients;
  at::Tensor boxes;  // decoded in evaluation
};

// The images' rows that are here, with what the surroundings say.
Outcome run(LayerGraph& graph, const at::Tensor& rows,
            const StepContext& context,
            const std::vector<LevelTargets>& targets,
            const GlobalCounts& counts,
            const std::vector<int64_t>& first_rows) {
  Hyperparameters hyp;
  const LossGains gains = scale_gains(hyp, 3, 80, kWidth, 0);
  Outcome outcome;
  const Loss loss =
      detection_loss(graph.forward(rows, context), targets, counts, gains);
  loss.total.backward();
  outcome.total = loss.total.item<double>();
  outcome.items = loss.items;
  outcome.batch_norm_sums = context.batch_norm_sums;
  for (const NamedTensor& entry : graph.state()) {
    if (!entry.is_parameter()) continue;
    outcome.names.push_back(entry.name);
    outcome.gradients.push_back(entry.tensor->grad());
  }
  const at::NoGradGuard no_grad;
  StepContext evaluation;
  evaluation.halo = context.halo;
  outcome.boxes = graph.decode(graph.forward(rows, evaluation), first_rows);
  return outcome;
}

Outcome run_whole() {
  at::set_num_threads(1);
  const auto graph = filled_graph();
  const auto targets = whole_targets(*graph);
  GlobalCounts counts{kImages, {}};
  for (const LevelTargets& level : targets)
    counts.matches.push_back(level.size());
  return run(*graph, images(), training_context(*graph), targets, counts, {});
}

Outcome run_rank(int rank, Communicator& communicator) {
  const RowPartition partition(kHeight, kStride, communicator.size());
  CommunicatorExchange exchange(communicator);
  CommunicatorHaloExchange halo(communicator, partition);
  const auto graph = filled_graph();
  StepContext context = training_context(*graph);
  context.exchange = &exchange;
  context.halo = &halo;
  for (BatchNormGroup& group : context.groups) group.counts_here = rank == 0;

  std::vector<LevelTargets> targets;
  std::vector<int64_t> first_rows;
  GlobalCounts counts{kImages, {}};
  const auto whole = whole_targets(*graph);
  const auto levels = graph->levels();
  for (size_t i = 0; i < whole.size(); ++i) {
    const RowRange rows = partition.rows_of(rank, kStride / levels[i].stride);
    first_rows.push_back(rows.begin);
    targets.push_back(targets_of_rows(whole[i], rows.begin, rows.size()));
    counts.matches.push_back(whole[i].size());
    counts.global_rows.push_back(kHeight / levels[i].stride);
  }
  const RowRange rows = partition.image_rows_of(rank);
  return run(*graph, images().narrow(2, rows.begin, rows.size()), context,
             targets, counts, first_rows);
}

// Boxes [N, rows, fields] in one order: by the place of each in its level.
at::Tensor joined_boxes(const std::vector<Outcome>& parts) {
  std::vector<at::Tensor> levels;
  std::vector<int64_t> begins(parts.size(), 0);
  for (const int64_t stride : {8, 16, 32}) {
    std::vector<at::Tensor> maps;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const int64_t height =
          RowPartition(kHeight, kStride, static_cast<int>(parts.size()))
              .rows_of(static_cast<int>(rank), kStride / stride)
              .size();
      const int64_t width = kWidth / stride;
      const int64_t count = 3 * height * width;
      maps.push_back(parts[rank]
                         .boxes.narrow(1, begins[rank], count)
                         .view({kImages, 3, height, width, 85}));
      begins[rank] += count;
    }
    levels.push_back(at::cat(maps, 2).reshape({kImages, -1, 85}));
  }
  return at::cat(levels, 1);
}

double largest_difference(const at::Tensor& actual,
                          const at::Tensor& expected) {
  if (actual.sizes() != expected.sizes()) return INFINITY;
  return (actual - expected).abs().max().item<double>() /
         std::max(expected.abs().max().item<double>(), 1e-30);
}

TEST(SplitNetwork, EqualsWholeImages) {
  const Outcome whole = run_whole();
  ASSERT_GT(whole.items[0].item<double>(), 0);
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    std::vector<Outcome> parts(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](int rank, Communicator& communicator) {
      parts[static_cast<size_t>(rank)] = run_rank(rank, communicator);
    });
    Outcome sum = parts[0];
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      sum.total += parts[rank].total;
      sum.items = sum.items + parts[rank].items;
      sum.batch_norm_sums = sum.batch_norm_sums + parts[rank].batch_norm_sums;
      for (size_t i = 0; i < sum.gradients.size(); ++i)
        sum.gradients[i] = sum.gradients[i] + parts[rank].gradients[i];
    }
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
    EXPECT_LE(largest_difference(joined_boxes(parts), whole.boxes), kTolerance);
    std::printf("%d ranks: largest relative difference of a gradient %.1e\n",
                ranks, worst);
  }
}

}  // namespace
}  // namespace headroom
