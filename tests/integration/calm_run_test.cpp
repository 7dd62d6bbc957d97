// Layout invariance over a long run. With calm hyper-parameters, 150 steps of
// yolov5n in float64, with ranks as threads, stay within 1e-6 of one process.
// At the end, every tensor of weights, moments, statistics and averages is
// within 1e-6 in relative L2 too.
//
// The suite named Slow runs with the label `slow`.
#include <ATen/ops/linalg_vector_norm.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/layout_run.h"

namespace headroom {
namespace {

constexpr double kTolerance = 1e-6;

LayoutRunOptions calm_options() {
  LayoutRunOptions options;
  options.height = 64;
  options.width = 96;
  options.global_batch_size = 6;
  options.steps = 150;
  options.calm = true;
  return options;
}

// The run of one process with each optimizer, made once.
const LayoutRun& one_process(configs::OptimizerKind optimizer) {
  static std::map<configs::OptimizerKind, LayoutRun> runs;
  LayoutRun& run = runs[optimizer];
  if (run.loss.empty()) {
    LayoutCase one = layout_case("one", "data=1", 0);
    one.optimizer = optimizer;
    run = run_layout(one, calm_options());
  }
  return run;
}

double length_of(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor).item<double>();
}

class CalmRun : public testing::TestWithParam<LayoutCase> {};

TEST_P(CalmRun, StaysWithOneProcessAndEndsWithItsWeights) {
  const LayoutRun& one = one_process(GetParam().optimizer);
  const LayoutRun run = run_layout(GetParam(), calm_options());
  ASSERT_EQ(run.loss.size(), 150u);
  EXPECT_GT(one.optimizer_steps, 10);
  EXPECT_EQ(run.optimizer_steps, one.optimizer_steps);
  for (size_t step = 0; step < one.loss.size(); ++step) {
    EXPECT_NEAR(run.loss[step] / one.loss[step], 1, kTolerance) << step;
    EXPECT_NEAR(run.gradient_norm[step] / one.gradient_norm[step], 1,
                kTolerance)
        << step;
  }
  ASSERT_EQ(run.state.size(), one.state.size());
  double worst = 0;
  for (const auto& [name, expected] : one.state) {
    ASSERT_TRUE(run.state.contains(name)) << name;
    const double difference = length_of(run.state.at(name) - expected);
    EXPECT_LE(difference, kTolerance * length_of(expected)) << name;
    if (difference > 0)
      worst = std::max(worst, difference / length_of(expected));
  }
  std::printf("%s: weights and state within %.0e\n", GetParam().name.c_str(),
              worst);
}

LayoutCase with_adamw(LayoutCase layout) {
  layout.name += "_adamw";
  layout.optimizer = configs::OptimizerKind::kAdamW;
  return layout;
}

std::string name_of(const testing::TestParamInfo<LayoutCase>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Quick, CalmRun,
                         testing::Values(layout_case("pipeline2", "pipeline=2",
                                                     2)),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Slow, CalmRun,
    testing::Values(
        layout_case("data2", "data=2", 0), layout_case("zero3", "data=2", 0, 3),
        layout_case("spatial2", "spatial=2", 0),
        layout_case("data2_pipeline2", "data=2,pipeline=2", 2),
        with_adamw(layout_case("data2_pipeline2", "data=2,pipeline=2", 2)),
        with_adamw(layout_case("zero3", "data=2", 0, 3))),
    name_of);

}  // namespace
}  // namespace headroom
