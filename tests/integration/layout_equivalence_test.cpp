// Layout invariance, tested separately for each mechanism. Yolov5n, and a model
// with all other modules, train in float64 with ranks as threads and are
// compared with one process. Some images are empty and some crowded, and some
// batches are short.
//
// The relative tolerance: 1e-9 for loss and gradient norm of steps 1-5; through
// step 20, 1e-6 for the loss and 1e-4 for the gradient norm (training is
// chaotic, so rounding errors grow). With recomputation every number is the
// same bit for bit.
//
// The bytes that each axis sends, and each rank's peak, which must be below
// that of one process, show that the work really is split. The table is
// printed.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

#include "configs/layers/model_table.h"
#include "parallel/base/units.h"
#include "parallel/plan/batch_norm_groups.h"
#include "tests/support/layout_run.h"
#include "tests/support/usual_boxes.h"

namespace headroom {
namespace {

struct Row {
  LayoutCase layout;
  int64_t group = 2;
  int64_t freeze = 0;
  std::string model = "yolov5n";
  std::string teacher = "";
  // The batch that defines the usual groups; 0: no groups.
  int64_t usual_batch = 0;

  LayoutRunOptions options() const {
    LayoutRunOptions options;
    if (usual_batch > 0) return usual_options();
    options.batch_norm_group_size = group;
    options.freeze = freeze;
    options.table = layers::load_model_table(model);
    options.teacher = teacher;
    options.fill = predict_usual_boxes;
    return options;
  }

  // Every third batch is a short one, with groups of its own.
  LayoutRunOptions usual_options() const {
    LayoutRunOptions options;
    const auto rule = plan::usual_batch_norm_rule(usual_batch);
    options.table = layers::load_model_table(model);
    options.fill = predict_usual_boxes;
    options.height = options.width = 64;
    options.global_batch_size = usual_batch;
    options.batch_norm_group_size = rule.size;
    options.even_groups = rule.even;
    options.short_size = usual_batch / 2 + 5;
    options.steps = 6;
    return options;
  }
};

const LayoutRun& one_process(const Row& row) {
  static std::map<
      std::tuple<int64_t, int64_t, std::string, std::string, int64_t>,
      LayoutRun>
      runs;
  LayoutRun& run =
      runs[{row.group, row.freeze, row.model, row.teacher, row.usual_batch}];
  if (run.loss.empty()) {
    run = run_layout(layout_case("one", "data=1", 0), row.options());
  }
  return run;
}

double relative(double expected, double actual) {
  return std::abs(expected - actual) / std::abs(expected);
}

struct Largest {
  double early_loss = 0, loss = 0, early_norm = 0, norm = 0;
};

Largest largest_deviations(const LayoutRun& one, const LayoutRun& other) {
  Largest largest;
  for (size_t step = 0; step < one.loss.size(); ++step) {
    const double loss = relative(one.loss[step], other.loss[step]);
    const double norm =
        relative(one.gradient_norm[step], other.gradient_norm[step]);
    largest.loss = std::max(largest.loss, loss);
    largest.norm = std::max(largest.norm, norm);
    if (step >= 5) continue;
    largest.early_loss = std::max(largest.early_loss, loss);
    largest.early_norm = std::max(largest.early_norm, norm);
  }
  return largest;
}

class Layouts : public testing::TestWithParam<Row> {};

void print_row(const Row& row, const LayoutRun& one, const LayoutRun& run,
               const Largest& largest) {
  int64_t peak = 0;
  LayoutRun::Bytes most;
  for (size_t rank = 0; rank < run.bytes.size(); ++rank) {
    peak = std::max(peak, run.peak_bytes[rank]);
    const LayoutRun::Bytes& bytes = run.bytes[rank];
    most.pipeline = std::max(most.pipeline, bytes.pipeline);
    most.data = std::max(most.data, bytes.data);
    most.spatial = std::max(most.spatial, bytes.spatial);
    most.replicas = std::max(most.replicas, bytes.replicas);
    most.statistics = std::max(most.statistics, bytes.statistics);
  }
  const auto steps = static_cast<int64_t>(run.loss.size());
  std::printf(
      "| %-34s | %.0e %.0e | %4.2f | %9s | %9s | %9s | %9s | %9s |\n",
      row.layout.name.c_str(), largest.loss, largest.norm,
      static_cast<double>(peak) / static_cast<double>(one.peak_bytes[0]),
      format_bytes(most.pipeline / steps).c_str(),
      format_bytes(most.data / steps).c_str(),
      format_bytes(most.spatial / steps).c_str(),
      format_bytes(most.replicas / steps).c_str(),
      format_bytes(most.statistics / steps).c_str());
  std::fflush(stdout);
}

TEST_P(Layouts, EqualOneProcess) {
  const Row& row = GetParam();
  const LayoutRun& one = one_process(row);
  const LayoutRun run = run_layout(row.layout, row.options());
  ASSERT_EQ(run.loss.size(), one.loss.size());
  EXPECT_EQ(run.optimizer_steps, row.options().steps)
      << "warm-up steps at every commit";
  const Largest largest = largest_deviations(one, run);
  print_row(row, one, run, largest);
  EXPECT_LT(largest.early_loss, 1e-9);
  EXPECT_LT(largest.early_norm, 1e-9);
  EXPECT_LT(largest.loss, 1e-6);
  EXPECT_LT(largest.norm, 1e-4);

  const plan::Plan& plan = row.layout.plan;
  for (size_t rank = 0; rank < run.bytes.size(); ++rank) {
    const LayoutRun::Bytes& bytes = run.bytes[rank];
    EXPECT_EQ(bytes.pipeline > 0, plan.layout.pipeline_parallel_size > 1);
    EXPECT_EQ(bytes.spatial > 0, plan.layout.spatial_parallel_size > 1);
    const bool has_replicas =
        plan.layout.data_parallel_size * plan.layout.spatial_parallel_size > 1;
    EXPECT_EQ(bytes.replicas > 0, has_replicas);
    if (plan.zero_stage > 0) {
      EXPECT_GT(bytes.data, 0);
    }
    EXPECT_LT(run.peak_bytes[rank], one.peak_bytes[0]) << "rank " << rank;
  }
}

std::vector<Row> rows() {
  std::vector<Row> all;
  const auto add = [&all](const LayoutCase& layout, int64_t group = 2,
                          int64_t freeze = 0, const std::string& teacher = "") {
    all.push_back({layout, group, freeze, "yolov5n", teacher});
  };
  add(layout_case("data2", "data=2", 0));
  add(layout_case("data3", "data=3", 0));
  add(layout_case("data4", "data=4", 0));
  add(layout_case("data2_group8", "data=2", 0), 8);
  // Two pairs of ranks share a group each.
  add(layout_case("data4_group4", "data=4", 0), 4);
  // Rank 1 shares one group with rank 0 and one with rank 2.
  add(layout_case("data3_group4", "data=3", 0), 4);
  // Each rank has a group of its own and one that it shares.
  add(layout_case("data2_spatial2_group3", "data=2,spatial=2", 0), 3);
  add(layout_case("zero1_data2", "data=2", 0, 1));
  add(layout_case("zero2_data2", "data=2", 0, 2));
  add(layout_case("zero3_data2", "data=2", 0, 3));
  add(layout_case("zero3_data4_micro2", "data=4", 2, 3));
  add(layout_case("pipeline2", "pipeline=2", 2));
  add(layout_case("pipeline3", "pipeline=3", 2));
  add(layout_case("pipeline4", "pipeline=4", 2));
  add(layout_case("spatial2", "spatial=2", 0));
  add(layout_case("spatial3", "spatial=3", 0));
  add(layout_case("data2_pipeline2", "data=2,pipeline=2", 2));
  add(layout_case("data2_spatial2", "data=2,spatial=2", 0));
  add(layout_case("data2_spatial2_group8", "data=2,spatial=2", 0), 8);
  add(layout_case("pipeline2_spatial2", "pipeline=2,spatial=2", 2));
  add(layout_case("data2_zero3_recompute", "data=2", 2, 3,
                  plan::ActivationPolicy::kRecompute));
  add(layout_case("data2_spatial2_zero2", "data=2,spatial=2", 2, 2));
  add(layout_case("data2_pipeline2_zero1_recompute", "data=2,pipeline=2", 2, 1,
                  plan::ActivationPolicy::kRecompute));
  // In the first case the last layers of the first stage are trained; in the
  // second case all layers of the first stage and the first layer of the second
  // one are frozen.
  add(layout_case("data2_pipeline2_zero3_freeze5", "data=2,pipeline=2", 2, 3),
      2, 5);
  add(layout_case("data2_pipeline2_zero3_freeze10_recompute",
                  "data=2,pipeline=2", 2, 3,
                  plan::ActivationPolicy::kRecompute),
      2, 10);
  // A model with all modules that yolov5n does not have.
  for (const LayoutCase& layout :
       {layout_case("modules_data2", "data=2", 0),
        layout_case("modules_zero3_recompute", "data=2", 2, 3,
                    plan::ActivationPolicy::kRecompute),
        layout_case("modules_pipeline2_lean", "pipeline=2", 2, 0,
                    plan::ActivationPolicy::kLean),
        layout_case("modules_spatial2", "spatial=2", 0),
        layout_case("modules_pipeline2_spatial3_recompute",
                    "pipeline=2,spatial=3", 2, 0,
                    plan::ActivationPolicy::kRecompute)})
    all.push_back({layout, 2, 0,
                   HEADROOM_SOURCE_DIR
                   "/tests/support/models/many_modules.yaml"});
  add(layout_case("teacher_data2", "data=2", 0), 2, 0, "yolov5s");
  add(layout_case("teacher_micro2", "data=1", 2), 2, 0, "yolov5s");
  add(layout_case("teacher_data2_zero3_recompute", "data=2", 2, 3,
                  plan::ActivationPolicy::kRecompute),
      2, 0, "yolov5s");
  for (const int64_t group : {1, 2, 4}) {
    for (const int64_t micro : {1, 2, 4}) {
      if (micro % group != 0) continue;
      add(layout_case("micro" + std::to_string(micro) + "_group" +
                          std::to_string(group),
                      "data=1", micro),
          group);
    }
  }
  return all;
}

// Batches of a single group, with groups of two sizes, and with groups that
// several ranks share.
std::vector<Row> uneven_rows(const std::vector<int64_t>& batches) {
  std::vector<Row> all;
  for (const int64_t batch : batches) {
    const int64_t group =
        plan::largest_group(batch, plan::usual_batch_norm_rule(batch));
    const std::string name = "batch" + std::to_string(batch) + "_";
    for (const LayoutCase& layout :
         {layout_case(name + "data2", "data=2", 0),
          layout_case(name + "data3", "data=3", 0),
          layout_case(name + "pipeline2", "pipeline=2", group),
          layout_case(name + "spatial2", "spatial=2", group),
          layout_case(name + "zero3_data2", "data=2", 0, 3),
          layout_case(name + "zero3_data3", "data=3", 0, 3),
          layout_case(name + "data2_pipeline2_zero3_recompute",
                      "data=2,pipeline=2", group, 3,
                      plan::ActivationPolicy::kRecompute)}) {
      Row row{layout};
      row.usual_batch = batch;
      all.push_back(row);
    }
    if (batch < 32) continue;
    Row row{layout_case(name + "micro_batches", "data=1", group)};
    row.usual_batch = batch;
    all.push_back(row);
  }
  return all;
}

// The layouts of rows(), without a teacher, and two uneven batches, for heads
// without anchors.
std::vector<Row> rows_without_anchors() {
  std::vector<Row> all, of_anchors = rows();
  const std::vector<Row> uneven = uneven_rows({17, 37});
  of_anchors.insert(of_anchors.end(), uneven.begin(), uneven.end());
  for (const char* model : {"yolov5nu", "yolov8n"}) {
    for (Row row : of_anchors) {
      if (row.model != "yolov5n" || !row.teacher.empty()) continue;
      row.model = model;
      row.layout.name = model + ("_" + row.layout.name);
      all.push_back(row);
    }
  }
  return all;
}

// The layouts of the quick suite: one for each mechanism, and one for each pair
// of mechanisms that act on the same tensors. The other layouts take minutes.
const std::set<std::string> kQuick = {
    "data2_group8",
    "data3_group4",
    "data2_spatial2_group3",
    "zero1_data2",
    "zero2_data2",
    "zero3_data4_micro2",
    "pipeline3",
    "spatial2",
    "data2_spatial2_group8",
    "pipeline2_spatial2",
    "data2_spatial2_zero2",
    "data2_pipeline2_zero3_freeze5",
    "modules_zero3_recompute",
    "modules_pipeline2_lean",
    "modules_spatial2",
    "teacher_data2_zero3_recompute",
    "micro2_group1",
    "yolov5nu_data2_pipeline2_zero3_freeze5",
    "yolov5nu_spatial2",
    "yolov8n_data2_spatial2_group3",
    "yolov8n_zero3_data4_micro2",
    "batch37_data3",
    "batch37_zero3_data3",
    "batch37_spatial2",
};

std::vector<Row> all_rows(bool quick) {
  std::vector<Row> chosen = rows();
  const std::vector<Row> uneven = uneven_rows({17, 34, 37, 100});
  chosen.insert(chosen.end(), uneven.begin(), uneven.end());
  const std::vector<Row> without_anchors = rows_without_anchors();
  chosen.insert(chosen.end(), without_anchors.begin(), without_anchors.end());
  std::erase_if(chosen, [quick](const Row& row) {
    return kQuick.contains(row.layout.name) != quick;
  });
  return chosen;
}

std::string name_of(const testing::TestParamInfo<Row>& info) {
  return info.param.layout.name;
}

INSTANTIATE_TEST_SUITE_P(Quick, Layouts, testing::ValuesIn(all_rows(true)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Slow, Layouts, testing::ValuesIn(all_rows(false)),
                         name_of);

TEST(QuickLayouts, AllExist) {
  EXPECT_EQ(all_rows(true).size(), kQuick.size());
}

}  // namespace
}  // namespace headroom
