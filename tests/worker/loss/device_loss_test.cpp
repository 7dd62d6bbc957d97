// The loss on a device equals the CPU's. The host cannot access the test
// device's memory, and the device's kernels are the source text of the CUDA
// plugin.
#include "worker/loss/device_loss.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/max.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/device_scratch.h"
#include "tests/support/test_device/test_device_api.h"

namespace headroom::loss {
namespace {

struct Case {
  int64_t classes = 4;
  double gamma = 0;
  int64_t rows = 30;
  int64_t images = 2;
  at::ScalarType type = at::kDouble;
  int64_t capacity = 0;  // room for matches
  bool weighs_classes = false;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.classes << " classes, gamma " << c.gamma << ", " << c.rows
       << " rows, " << c.images << " images, " << c10::toString(c.type)
       << ", room for " << c.capacity
       << (c.weighs_classes ? ", weights of classes" : "");
}

constexpr int64_t kAnchors = 3, kHeight = 5, kWidth = 4;

// There are few cells, so several rows share a cell.
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
  at::Tensor total, items;
  std::vector<at::Tensor> gradients;
};

LevelScales scales_of(const Case& c, double obj) {
  LevelScales scales;
  scales.box = 0.05;
  scales.obj = obj;
  scales.cls = 0.3;
  scales.images = 3;
  scales.positive_target = 0.95;
  scales.negative_target = 0.05;
  scales.obj_rule = {1.3, c.gamma};
  scales.cls_rule = {0.8, c.gamma};
  for (int64_t i = 0; c.weighs_classes && i < c.classes; ++i) {
    scales.class_weights.push_back(0.5 + static_cast<double>(i));
  }
  return scales;
}

// Takes a gradient of the sizes and type of `map`, as Detect takes its heads'.
struct TakesAMap : torch::autograd::Function<TakesAMap> {
  static at::Tensor forward(torch::autograd::AutogradContext*,
                            const at::Tensor& map) {
    return at::empty_strided(map.sizes(), {0, 0, 0, 0}, map.options());
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*,
      torch::autograd::variable_list gradients) {
    return gradients;
  }
};

constexpr double kLossScale = 2;

// Two levels, the second without matches, in the layout of Detect's heads.
Result loss_on(const devices::ComputeDevice& device, const Case& c,
               const std::vector<at::Tensor>& cells,
               const std::vector<LevelTargets>& targets,
               std::optional<at::ScalarType> maps = {}) {
  const std::vector<LevelScales> scales = {scales_of(c, 0.7),
                                           scales_of(c, 0.2)};
  std::vector<at::Tensor> leaves, heads;
  for (const at::Tensor& level : cells) {
    const at::Tensor there = level.to(device.device()).clone();
    if (maps) {
      const int64_t channels = filled_channels(level.size(3) * level.size(4));
      const at::Tensor map =
          at::zeros({level.size(0), channels, level.size(1), level.size(2)},
                    *maps)
              .contiguous(at::MemoryFormat::ChannelsLast)
              .to(device.device());
      leaves.push_back(map.requires_grad_());
      heads.push_back(
          torch::autograd::make_variable(there.permute({0, 3, 1, 2, 4}),
                                         torch::autograd::impl::gradient_edge(
                                             TakesAMap::apply(leaves.back()))));
      continue;
    }
    leaves.push_back(there.requires_grad_());
    heads.push_back(leaves.back().permute({0, 3, 1, 2, 4}));
  }
  LevelLoss loss;
  if (device.is_cpu()) {
    loss = level_loss(heads[0], targets[0], scales[0]);
    const LevelLoss second = level_loss(heads[1], targets[1], scales[1]);
    loss.total = (loss.total + second.total) * kLossScale;
    loss.items = loss.items + second.items;
  } else {
    PackedTargets packed = pack_targets(
        targets, {size_of(heads[0]), size_of(heads[1])}, c.capacity);
    packed.bytes = device.upload(packed.bytes);
    loss = device_loss(*device.kernels(), heads, packed,
                       device.upload(step_scales(scales, kLossScale)),
                       loss_rules(scales[0]));
  }
  loss.total.mul(2).backward();
  Result result{loss.total.detach().cpu(), loss.items.cpu(), {}};
  for (const at::Tensor& leaf : leaves) {
    result.gradients.push_back(leaf.grad().cpu());
  }
  return result;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  return at::max(at::abs(a - b)).item<double>() /
         at::max(at::abs(b)).item<double>();
}

class DeviceLossTest : public testing::TestWithParam<Case> {};

TEST_P(DeviceLossTest, EqualsTheCpus) {
  const Case& c = GetParam();
  const devices::ComputeDevice device = test_compute_device();
  // Not at::manual_seed: it seeds every device, and the test device has no
  // generator.
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(5);
  const std::vector<at::Tensor> cells = {
      at::randn({c.images, kHeight, kWidth, kAnchors, 5 + c.classes}, c.type),
      at::randn({c.images, 2, 3, kAnchors, 5 + c.classes}, c.type)};
  const std::vector<LevelTargets> targets = {
      targets_of(c), targets_of({.rows = 0, .type = c.type})};
  const Result expected = loss_on({}, c, cells, targets);
  const Result result = loss_on(device, c, cells, targets);
  // In float32 the device computes and sums in float32.
  const bool is_double = c.type == at::kDouble;
  EXPECT_LE(relative_error(result.total, expected.total),
            is_double ? 1e-12 : 1e-6);
  EXPECT_LE(relative_error(result.items, expected.items),
            is_double ? 1e-12 : 1e-6);
  for (size_t level = 0; level < cells.size(); ++level) {
    EXPECT_LE(
        relative_error(result.gradients[level], expected.gradients[level]),
        is_double ? 1e-13 : 1e-6)
        << level;
    EXPECT_EQ(result.gradients[level].scalar_type(), c.type);
  }

  // Room for more matches changes no bit, because the order of sums does not
  // depend on it.
  Case roomy = c;
  roomy.capacity += 500;
  const Result padded = loss_on(device, roomy, cells, targets);
  EXPECT_TRUE(padded.total.equal(result.total));
  EXPECT_TRUE(padded.items.equal(result.items));
  EXPECT_TRUE(padded.gradients[0].equal(result.gradients[0]));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, DeviceLossTest,
    testing::Values(Case{}, Case{.gamma = 1.5}, Case{.classes = 1},
                    Case{.rows = 0}, Case{.type = at::kFloat},
                    Case{.classes = 1, .gamma = 2, .type = at::kFloat},
                    Case{.classes = 80, .capacity = 77},
                    Case{.rows = 0, .capacity = 5},
                    Case{.weighs_classes = true},
                    Case{.gamma = 1.5, .weighs_classes = true},
                    Case{.type = at::kFloat, .weighs_classes = true},
                    Case{.type = at::kFloat, .capacity = 31}));

// The gradients are the ones of a float32 head, rounded once; the channels that
// fill a map up are zeros.
TEST(DeviceLoss, TheGradientOf16BitMapsIsAMapOf16Bits) {
  const devices::ComputeDevice device = test_compute_device();
  for (const int64_t classes : {1, 3, 4, 80}) {
    const Case c{.classes = classes, .type = at::kFloat};
    const std::vector<at::Tensor> cells = {
        at::randn({c.images, kHeight, kWidth, kAnchors, 5 + classes}),
        at::randn({c.images, 2, 3, kAnchors, 5 + classes})};
    const std::vector<LevelTargets> targets = {
        targets_of(c), targets_of({.rows = 0, .type = c.type})};
    const Result wide = loss_on(device, c, cells, targets);
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const Result result = loss_on(device, c, cells, targets, type);
      EXPECT_TRUE(result.total.equal(wide.total));
      for (size_t level = 0; level < cells.size(); ++level) {
        const at::Tensor gradient =
            result.gradients[level].permute({0, 2, 3, 1});
        ASSERT_EQ(gradient.scalar_type(), type);
        const int64_t own = kAnchors * (5 + classes);
        EXPECT_TRUE(gradient.narrow(3, 0, own).equal(
            wide.gradients[level].flatten(3).to(type)))
            << classes << " classes, level " << level;
        EXPECT_EQ(gradient.narrow(3, own, gradient.size(3) - own)
                      .ne(0)
                      .sum()
                      .item<int64_t>(),
                  0);
      }
    }
  }
}

TEST(DeviceLoss, AMatchOutsideItsHeadIsRefused) {
  Case c;
  EXPECT_ANY_THROW(pack_targets(
      {targets_of(c)}, {{c.images, kAnchors, kHeight - 1, kWidth, c.classes}}));
}

}  // namespace
}  // namespace headroom::loss
