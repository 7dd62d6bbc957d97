// The loss of one level on a device against the CPU's: the test device's memory
// is out of the host's reach, its row kernels are the CUDA plugin's text.
#include "worker/loss/device_level_loss.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"
#include "tests/support/test_device/test_device_api.h"

namespace headroom::loss {
namespace {

struct Case {
  int64_t classes = 4;
  double gamma = 0;
  int64_t rows = 30;
  int64_t images = 2;
  at::ScalarType type = at::kDouble;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.classes << " classes, gamma " << c.gamma << ", " << c.rows
       << " rows, " << c.images << " images, " << c10::toString(c.type);
}

constexpr int64_t kAnchors = 3, kHeight = 5, kWidth = 4;

// Few cells, so that several rows share one.
LevelTargets targets_of(const Case& c) {
  LevelTargets targets;
  targets.index = at::empty({c.rows, 5}, at::kLong);
  int64_t* field = targets.index.data_ptr<int64_t>();
  for (int64_t row = 0; row < c.rows; ++row) {
    *field++ = row % c.images;
    *field++ = row % kAnchors;
    *field++ = row * 7 % kHeight;
    *field++ = row * 3 % 2;
    *field++ = row % c.classes;
  }
  targets.box = at::rand({c.rows, 4}, c.type) + 0.5;
  targets.anchors = at::rand({c.rows, 2}, c.type) + 1;
  return targets;
}

struct Result {
  at::Tensor total, items, gradient;
};

// As Detect lays a head out.
Result loss_on(const devices::ComputeDevice& device, const Case& c,
               const at::Tensor& cells, const LevelTargets& targets) {
  at::Tensor leaf = cells.to(device.device()).clone().requires_grad_();
  LevelScales scales;
  scales.box = 0.05;
  scales.obj = 0.7;
  scales.cls = 0.3;
  scales.images = 3;
  scales.positive_target = 0.95;
  scales.negative_target = 0.05;
  scales.obj_rule = {1.3, c.gamma};
  scales.cls_rule = {0.8, c.gamma};
  const LevelLoss loss =
      level_loss(leaf.permute({0, 3, 1, 2, 4}), targets, scales);
  loss.total.mul(2).backward();
  return {loss.total.detach().cpu(), loss.items.cpu(), leaf.grad().cpu()};
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  return at::max(at::abs(a - b)).item<double>() /
         at::max(at::abs(b)).item<double>();
}

class DeviceLevelLoss : public testing::TestWithParam<Case> {};

TEST_P(DeviceLevelLoss, EqualsTheCpus) {
  const Case& c = GetParam();
  const devices::ComputeDevice device = test_compute_device();
  // Not at::manual_seed: it seeds every device, and the test device has no
  // generator.
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(5);
  const at::Tensor cells =
      at::randn({c.images, kHeight, kWidth, kAnchors, 5 + c.classes}, c.type);
  const LevelTargets targets = targets_of(c);
  const Result expected = loss_on({}, c, cells, targets);
  const Result result = loss_on(device, c, cells, targets);
  const double tolerance = c.type == at::kDouble ? 1e-13 : 1e-6;
  EXPECT_LE(relative_error(result.total, expected.total), 1e-12);
  EXPECT_LE(relative_error(result.items, expected.items), 1e-12);
  EXPECT_LE(relative_error(result.gradient, expected.gradient), tolerance);
  EXPECT_EQ(result.gradient.scalar_type(), c.type);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, DeviceLevelLoss,
    testing::Values(Case{}, Case{.gamma = 1.5}, Case{.classes = 1},
                    Case{.rows = 0}, Case{.type = at::kFloat},
                    Case{.classes = 1, .gamma = 2, .type = at::kFloat}));

TEST(DeviceLevelLoss, AHeadWithoutKernelsIsRefused) {
  EXPECT_THROW(loss_kernels_for(at::empty({1}, at::TensorOptions(at::kMeta))),
               Error);
  EXPECT_EQ(loss_kernels_for(at::empty({1})), nullptr);
}

}  // namespace
}  // namespace headroom::loss
