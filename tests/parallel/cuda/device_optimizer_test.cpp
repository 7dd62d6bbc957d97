// The optimizer's kernel on a GPU beyond plain SGD (device_kernels_test.cpp):
// Adam and AdamW, the clip that lies on the device, ranges without a gradient.
#include <ATen/Functions.h>

#include <cmath>
#include <limits>
#include <vector>

#include "parallel/devices/device_kernels.h"
#include "tests/parallel/cuda/plugin.h"
#include "worker/optim/optimizer.h"

namespace headroom::cuda {
namespace {

constexpr int64_t kSize = 50'021;
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kClip = 0.25;

// Between the two lies what is averaged only: frozen layers, running sums.
const std::vector<devices::FlatBufferRange> kRanges = {{0, 30'001, 1},
                                                       {40'000, 10'021, 2}};
const std::vector<optim::Segment> kSegments = {{0, 30'001, 1},
                                               {40'000, 10'021, 2}};
const optim::AllGroupSettings kGroups = {{{0.1, 0}, {0.01, 5e-4}, {0.02, 0}}};

struct State {
  at::Tensor parameters = at::randn({kSize}, at::kDouble);
  at::Tensor gradients = at::randn({kSize}, at::kDouble);
  at::Tensor first = at::zeros({kSize}, at::kDouble);
  at::Tensor second = at::zeros({kSize}, at::kDouble);
  at::Tensor average = parameters.clone();

  State on_device() const {
    return {parameters.to(at::kCUDA), gradients.to(at::kCUDA),
            first.to(at::kCUDA), second.to(at::kCUDA), average.to(at::kCUDA)};
  }
};

devices::DeviceOptimizerStep adam_step(int64_t update, bool decoupled) {
  const auto t = static_cast<double>(update);
  devices::DeviceOptimizerStep step;
  step.is_adam = true;
  for (size_t g = 0; g < kGroups.size(); ++g) {
    kernels::AdamCoefficients<double>& c = step.adam[g];
    c.step_size = kGroups[g].lr / (1 - std::pow(kBeta1, t));
    c.root_of_correction = std::sqrt(1 - std::pow(kBeta2, t));
    c.one_minus_beta1 = 1 - kBeta1;
    c.beta2 = kBeta2;
    c.one_minus_beta2 = 1 - kBeta2;
    c.epsilon = 1e-8;
    c.clip = 99;  // the device's replaces it
    c.weight_decay = decoupled ? 0 : kGroups[g].weight_decay;
    c.shrink = decoupled ? 1 - kGroups[g].lr * kGroups[g].weight_decay : 1;
  }
  step.average_weight = 1 - optim::ema_decay(update);
  step.clip = at::full({1}, kClip, at::kDouble).to(at::kCUDA);
  return step;
}

class DeviceAdam : public ::testing::TestWithParam<bool> {};

TEST_P(DeviceAdam, EqualsTheCpusWithTheClipOfTheDevice) {
  HEADROOM_NEEDS_DEVICE();
  at::manual_seed(11);
  const State cpu;
  const State device = cpu.on_device();
  const auto optimizer =
      plugin().api->kernels().make_optimizer(0, kRanges, kSize);
  for (int64_t update = 1; update <= 3; ++update) {
    optim::adam_step(cpu.parameters, cpu.gradients, cpu.first, cpu.second,
                     kSegments, kGroups, {kBeta1, update, kClip, GetParam()});
    optim::ema_update(cpu.average, cpu.parameters, update);
    optimizer->step(adam_step(update, GetParam()), device.parameters,
                    device.gradients, device.first, device.second,
                    device.average);
  }
  EXPECT_TRUE(device.parameters.cpu().allclose(cpu.parameters, 1e-11, 1e-12));
  EXPECT_TRUE(device.first.cpu().allclose(cpu.first, 1e-11, 1e-12));
  EXPECT_TRUE(device.second.cpu().allclose(cpu.second, 1e-11, 1e-12));
  EXPECT_TRUE(device.average.cpu().allclose(cpu.average, 1e-11, 1e-12));
}

INSTANTIATE_TEST_SUITE_P(AdamAndAdamW, DeviceAdam, ::testing::Bool());

// A gradient that is no number must not reach what it does not belong to, nor
// come to rest unseen.
TEST(DeviceOptimizer, NoNumberStaysWhereItIs) {
  HEADROOM_NEEDS_DEVICE();
  at::manual_seed(12);
  const State cpu;
  cpu.gradients[7] = std::numeric_limits<double>::quiet_NaN();
  cpu.gradients[35'000] = std::numeric_limits<double>::quiet_NaN();  // no range
  const State device = cpu.on_device();
  plugin()
      .api->kernels()
      .make_optimizer(0, kRanges, kSize)
      ->step(adam_step(1, /*decoupled=*/true), device.parameters,
             device.gradients, device.first, device.second, device.average);
  const at::Tensor is_none = device.parameters.cpu().isnan();
  EXPECT_EQ(is_none.sum().item<int64_t>(), 1);
  EXPECT_TRUE(is_none[7].item<bool>());
}

}  // namespace
}  // namespace headroom::cuda
