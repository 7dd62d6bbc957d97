// Random layouts of small models with each kind of head, from seeds. Either the
// layout is refused for a reason that its numbers confirm, or the parts of its
// plan fit together and two steps in float64, with ranks as threads, give the
// losses and gradient norms of one process.
//
// A deadlock ends the test program: every operation and every run has a limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "parallel/plan/batch_split.h"
#include "parallel/planner/planner.h"
#include "parallel/zero/shard_map.h"
#include "tests/support/layout_run.h"
#include "tests/support/usual_boxes.h"
#include "tests/worker/model/tiny_table.h"
#include "worker/data/sampling/random.h"

namespace headroom {
namespace {

constexpr int kMaxRanks = 6;
constexpr int64_t kStride = 16, kWidth = 48;

struct Draw {
  configs::RunConfig config;
  plan::ParallelLayout layout;
  int64_t height = 0;      // a multiple of kStride
  int64_t short_size = 0;  // the number of samples of the second step

  std::string name() const {
    return plan::to_string(layout) + " batch " +
           std::to_string(config.global_batch_size) + " then " +
           std::to_string(short_size) + " micro " +
           std::to_string(config.micro_batch_size) + " group " +
           std::to_string(config.batch_norm_group_size) + " zero " +
           std::to_string(config.zero_stage) + " height " +
           std::to_string(height) + " " + config.activations;
  }
};

Draw draw_layout(sampling::RandomStream& draws) {
  Draw draw;
  do {
    draw.layout.data_parallel_size = static_cast<int>(1 + draws.below(4));
    draw.layout.pipeline_parallel_size = static_cast<int>(1 + draws.below(3));
    draw.layout.spatial_parallel_size = static_cast<int>(1 + draws.below(3));
  } while (draw.layout.world_size() > kMaxRanks);
  draw.height = kStride * (2 + draws.below(4));
  configs::RunConfig& config = draw.config;
  config.layout = draw.layout;
  config.image_height = draw.height;
  config.image_width = kWidth;
  config.global_batch_size = 1 + draws.below(9);
  config.micro_batch_size = draws.below(5);  // 0: chosen by the planner
  config.batch_norm_group_size = draws.below(5);
  config.zero_stage = draws.below(4);
  config.activations = draws.below(4) == 0 ? "recompute" : "keep";
  draw.short_size = 1 + draws.below(config.global_batch_size);
  return draw;
}

// The rules for layouts, written independently of the program.
bool is_admissible(const Draw& draw) {
  const configs::RunConfig& config = draw.config;
  const int64_t batch = config.global_batch_size;
  const int data = draw.layout.data_parallel_size;
  if (batch < data || config.batch_norm_group_size > batch) return false;
  if (draw.layout.spatial_parallel_size > draw.height / kStride) return false;
  const int64_t group = config.batch_norm_group_size > 0
                            ? config.batch_norm_group_size
                            : batch;  // fewer than 17 images are one group
  const int64_t share = (batch + data - 1) / data;
  const int64_t micro = config.micro_batch_size;
  return micro == 0 || micro >= share || micro % group == 0;
}

// Draws the first layer of each stage: any layer is possible, but every stage
// must have a layer with parameters.
std::vector<int64_t> draw_stages(sampling::RandomStream& draws, int stages,
                                 const std::vector<layers::LayerCost>& layers) {
  // The branches of a head are in one stage.
  const auto num_layers = static_cast<int64_t>(
      std::ranges::find_if(layers, &layers::LayerCost::is_branch) -
      layers.begin());
  for (;;) {
    std::vector<int64_t> begins = {0};
    for (int stage = 1; stage < stages; ++stage) {
      begins.push_back(begins.back() + 1 +
                       draws.below(num_layers / stages + 1));
    }
    if (begins.back() >= num_layers) continue;
    bool good = true;
    for (size_t stage = 0; stage < begins.size(); ++stage) {
      const int64_t end =
          stage + 1 < begins.size() ? begins[stage + 1] : std::ssize(layers);
      int64_t parameters = 0;
      for (int64_t layer = begins[stage]; layer < end; ++layer) {
        parameters += layers.at(static_cast<size_t>(layer)).parameters;
      }
      good = good && parameters > 0;
    }
    if (good) return begins;
  }
}

// Expects that every sample is on one rank and in one micro-batch, and that all
// ranks have the same number of micro-batches.
void expect_samples_covered_once(const Draw& draw, const plan::Plan& plan,
                                 int64_t count) {
  const int data = plan.layout.data_parallel_size;
  const plan::BatchCut cut = {draw.config.global_batch_size, data,
                              plan.micro_batch_size, plan.batch_norm_rule()};
  const int64_t elements = draw.height / kStride * (kWidth / kStride);
  int64_t next = 0;
  size_t micro_batches = 0;
  for (int rank = 0; rank < data; ++rank) {
    const plan::BatchPart part = plan::part_of(cut, count, elements, rank);
    ASSERT_EQ(part.local.begin, next);
    for (const plan::SampleRange& micro_batch : part.micro_batches) {
      ASSERT_EQ(micro_batch.begin, next);
      next = micro_batch.end;
    }
    ASSERT_EQ(part.local.end, next);
    if (rank == 0) micro_batches = part.micro_batches.size();
    ASSERT_EQ(part.micro_batches.size(), micro_batches);
  }
  ASSERT_EQ(next, count);
}

// Expects that every element of every layer of a stage has one owner.
void expect_shards_cover_once(const plan::Plan& plan,
                              const std::vector<layers::LayerCost>& layers) {
  std::vector<int64_t> sizes;
  for (const layers::LayerCost& layer : layers)
    sizes.push_back(layer.parameters);
  const int ranks = plan.layout.data_parallel_size;
  const zero::ShardMap map(sizes, ranks, 8);
  for (int64_t layer = 0; layer < map.num_layers(); ++layer) {
    ASSERT_EQ(map.slice_size(layer) * ranks, map.padded_layer_size(layer));
    ASSERT_GE(map.padded_layer_size(layer), map.layer_size(layer));
    // The padding is less than the alignment of a slice on each rank.
    ASSERT_LT(map.padded_layer_size(layer) - map.layer_size(layer), 8 * ranks);
  }
}

LayoutRunOptions options_of(const Draw& draw, const plan::Plan& plan,
                            const layers::ModelTable& table) {
  LayoutRunOptions options;
  options.height = draw.height;
  options.width = kWidth;
  options.global_batch_size = draw.config.global_batch_size;
  options.batch_norm_group_size = plan.batch_norm_group_size;
  options.even_groups = plan.even_batch_norm_groups;
  options.short_size = draw.short_size;
  options.short_every = 2;
  options.steps = 2;
  options.table = table;
  if (table.anchors.empty()) options.fill = predict_usual_boxes;
  return options;
}

// The parameters that change the mathematics of a step.
using Definition = std::tuple<int64_t, int64_t, int64_t, int64_t>;

const LayoutRun& one_process(const Draw& draw, const plan::Plan& plan,
                             const layers::ModelTable& table,
                             std::map<Definition, LayoutRun>& runs) {
  LayoutRun& run =
      runs[{draw.config.global_batch_size, plan.batch_norm_group_size,
            draw.height, draw.short_size}];
  if (run.loss.empty()) {
    run = run_layout(layout_case("one", "data=1", 0),
                     options_of(draw, plan, table));
  }
  return run;
}

struct Counts {
  int trained = 0, refused = 0;
};

Counts expect_equal_or_refused(const layers::ModelTable& table, int layouts) {
  const std::vector<layers::LayerCost> layers = layers::layer_costs(table);
  std::map<Definition, LayoutRun> of_one_process;
  sampling::RandomStream draws(2026, 11, 21,
                               sampling::RandomPurpose::kPermutation);
  Counts counts;
  double worst = 0;
  for (int i = 0; i < layouts; ++i) {
    const Draw draw = draw_layout(draws);
    SCOPED_TRACE(std::to_string(i) + ": " + draw.name());
    planner::PlanDecision decision =
        planner::choose_plan(draw.config, draw.layout.world_size(), layers);
    EXPECT_EQ(decision.plan.has_value(), is_admissible(draw))
        << decision.reason;
    if (!decision.plan) {
      EXPECT_NE(decision.reason, "");
      EXPECT_NE(decision.remedy, "");
      EXPECT_EQ(decision.exit_code, ExitCode::kRequest);
      ++counts.refused;
      continue;
    }
    plan::Plan plan = *decision.plan;
    EXPECT_EQ(plan.stage_begins.size(),
              static_cast<size_t>(draw.layout.pipeline_parallel_size));
    if (draws.below(2) == 0) {
      plan.stage_begins =
          draw_stages(draws, draw.layout.pipeline_parallel_size, layers);
    }
    for (int64_t count = 1; count <= draw.config.global_batch_size; ++count) {
      expect_samples_covered_once(draw, plan, count);
    }
    expect_shards_cover_once(plan, layers);
    if (testing::Test::HasFailure()) break;

    const LayoutRun& one = one_process(draw, plan, table, of_one_process);
    LayoutCase layout;
    layout.name = draw.name();
    layout.plan = plan;
    const LayoutRun run = run_layout(layout, options_of(draw, plan, table));
    EXPECT_EQ(run.loss.size(), one.loss.size());
    for (size_t step = 0; step < run.loss.size(); ++step) {
      const double loss = std::abs(run.loss[step] / one.loss[step] - 1);
      const double norm =
          std::abs(run.gradient_norm[step] / one.gradient_norm[step] - 1);
      EXPECT_LT(loss, 1e-9) << "step " << step;
      EXPECT_LT(norm, 1e-9) << "step " << step;
      worst = std::max({worst, loss, norm});
    }
    ++counts.trained;
  }
  std::printf("%d trained, %d refused; largest deviation %.0e\n",
              counts.trained, counts.refused, worst);
  return counts;
}

TEST(RandomLayouts, AreRefusedOrEqualOneProcess) {
  const Counts counts = expect_equal_or_refused(model::tiny_table(), 200);
  EXPECT_GT(counts.trained, 60);
  EXPECT_GT(counts.refused, 20);
}

TEST(RandomLayouts, AreRefusedOrEqualOneProcessWithoutAnchors) {
  layers::ModelTable table = model::tiny_table();
  table.anchors.clear();
  table.layers.back().args = {std::string("nc")};
  table.layers.at(7).module = "C2f";
  const Counts counts = expect_equal_or_refused(table, 150);
  EXPECT_GE(counts.trained, 50);
  EXPECT_GT(counts.refused, 15);
}

}  // namespace
}  // namespace headroom
