// Mixed precision: maps of 16 bits beside a float32 state, yolov5n on images
// that include empty and crowded ones and on short batches, with ranks as
// threads.
//
// The same layout under another activation policy gives the same bits. Another
// layout adds in another order what has been rounded to 8 bits (bfloat16) or 11
// (float16): a rank's maps are the same up to their last bit, and a gradient is
// rounded per micro-batch instead of once. The tolerances of the loss are 1 %
// and 0.2 % on steps 1-3, some four units in the last place; beyond that
// training is chaotic. Losses are held to float32's with 3 % and 1 % of it over
// 20 steps at a learning rate that keeps runs together.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "tests/support/layout_run.h"

namespace headroom {
namespace {

LayoutRunOptions options_of(Precision precision, int steps) {
  LayoutRunOptions options;
  options.precision = precision;
  options.steps = steps;
  return options;
}

double largest_difference(const std::vector<double>& a,
                          const std::vector<double>& b, size_t steps) {
  EXPECT_LE(steps, std::min(a.size(), b.size()));
  double largest = 0;
  for (size_t step = 0; step < steps; ++step)
    largest =
        std::max(largest, std::abs(a[step] - b[step]) / std::abs(a[step]));
  return largest;
}

struct Case {
  Precision precision;
  const char* name;
  double tolerance;   // of steps 1-3 under another layout
  double to_float32;  // over 20 steps
};

class MixedPrecision : public testing::TestWithParam<Case> {
 protected:
  static constexpr int kSteps = 5;
  const LayoutRun& one_process() const {
    static std::map<std::string, LayoutRun> runs;
    LayoutRun& run = runs[GetParam().name];
    if (run.loss.empty()) {
      run = run_layout(layout_case("one", "data=1", 0),
                       options_of(GetParam().precision, kSteps));
    }
    return run;
  }
};

void expect_same_bits(const LayoutRun& a, const LayoutRun& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.gradient_norm, b.gradient_norm);
  ASSERT_EQ(a.state.size(), b.state.size());
  for (const auto& [name, tensor] : a.state)
    EXPECT_TRUE(at::equal(tensor, b.state.at(name))) << name;
}

TEST_P(MixedPrecision, RepeatsBitForBitUnderEveryActivationPolicy) {
  for (const ActivationPolicy policy :
       {ActivationPolicy::kKeep, ActivationPolicy::kLean,
        ActivationPolicy::kRecompute, ActivationPolicy::kOffload}) {
    SCOPED_TRACE(static_cast<int>(policy));
    expect_same_bits(one_process(),
                     run_layout(layout_case("policy", "data=1", 0, 0, policy),
                                options_of(GetParam().precision, kSteps)));
  }
}

TEST_P(MixedPrecision, LayoutsAgreeWithinItsRounding) {
  const LayoutRun& one = one_process();
  const std::vector<LayoutCase> layouts = {
      layout_case("micro_batches", "data=1", 2),
      layout_case("data2", "data=2", 0),
      layout_case("zero2", "data=2", 0, 2),
      layout_case("zero3", "data=2", 0, 3),
      layout_case("pipeline2", "pipeline=2", 2),
      layout_case("spatial2", "spatial=2", 0),
      layout_case("zero3_pipeline2_recompute", "data=2,pipeline=2", 2, 3,
                  ActivationPolicy::kRecompute)};
  for (const LayoutCase& layout : layouts) {
    const LayoutRun run =
        run_layout(layout, options_of(GetParam().precision, kSteps));
    const double loss = largest_difference(one.loss, run.loss, 3);
    const double norm =
        largest_difference(one.gradient_norm, run.gradient_norm, 3);
    std::printf("| %s | %-26s | %.1e | %.1e |\n", GetParam().name,
                layout.name.c_str(), loss, norm);
    EXPECT_LE(loss, GetParam().tolerance) << layout.name;
    EXPECT_GT(one.state.size(), 0u);
    EXPECT_EQ(run.state.size(), one.state.size());
    for (const auto& [name, tensor] : run.state)
      EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
  }
}

TEST_P(MixedPrecision, StaysWithFloat32) {
  LayoutRunOptions options = options_of(GetParam().precision, 20);
  options.calm = true;
  const LayoutCase one = layout_case("one", "data=1", 0);
  const LayoutRun rounded = run_layout(one, options);
  options.precision = Precision::kFp32;
  const LayoutRun exact = run_layout(one, options);
  const double loss = largest_difference(exact.loss, rounded.loss, 20);
  std::printf("| %s | from float32 | %.1e |\n", GetParam().name, loss);
  EXPECT_LE(loss, GetParam().to_float32);
  EXPECT_GT(loss, 0);
  EXPECT_LT(rounded.peak_bytes[0], exact.peak_bytes[0]);
}

INSTANTIATE_TEST_SUITE_P(
    Types, MixedPrecision,
    testing::Values(Case{Precision::kBf16, "bf16", 0.01, 0.03},
                    Case{Precision::kFp16, "fp16", 0.002, 0.01}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace headroom
