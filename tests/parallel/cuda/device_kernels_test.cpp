// Compares the kernels on a GPU with the CPU's implementation. The tests are
// skipped by name if there is no GPU.
#include "worker/kernels/device_kernels.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <vector>

#include "tests/parallel/cuda/plugin.h"
#include "tests/worker/model/conv_block_fixture.h"
#include "worker/kernels/cpu/grouped_batch_norm.h"
#include "worker/kernels/cpu/kernel_registration.h"

namespace headroom::cuda {
namespace {

// A map and the tensors that belong to it, in double on the CPU.
struct Block {
  at::Tensor y, dout, weight, bias;
  kernels::GroupedBatchNorm norm;
  std::vector<kernels::MapGroup> groups;

  Block(int64_t channels, int64_t side, std::vector<int64_t> group_sizes) {
    at::manual_seed(5);
    int64_t samples = 0;
    for (const int64_t size : group_sizes) {
      norm.groups.push_back({samples, samples + size, size, true});
      samples += size;
      groups.push_back(
          {samples, static_cast<double>(size * side * side), true});
    }
    const auto map = [&] {
      return at::randn({samples, channels, side, side}, at::kDouble)
          .contiguous(at::MemoryFormat::ChannelsLast);
    };
    y = map() + 3;
    dout = map();
    weight = at::rand({channels}, at::kDouble) + 0.5;
    bias = at::randn({channels}, at::kDouble);
  }
};

double deviation(const at::Tensor& value, const at::Tensor& reference) {
  return ((value.cpu().to(at::kDouble) - reference).abs().max() /
          reference.abs().max())
      .item<double>();
}

class DeviceBatchNorm : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(DeviceBatchNorm, EqualsTheCpus) {
  HEADROOM_NEEDS_DEVICE();
  kernels::DeviceKernels& kernels = plugin().api->kernels();
  const at::ScalarType type = GetParam();
  const at::ScalarType weights = type == at::kDouble ? at::kDouble : at::kFloat;
  const double rounding = type == at::kDouble     ? 1e-12
                          : type == at::kFloat    ? 2e-6
                          : type == at::kBFloat16 ? 1e-2
                                                  : 2e-3;
  const std::map<int64_t, layers::ActivationFunction> activations = {
      {3, {}},
      {16, {layers::ActivationKind::kLeaky, 0.1}},
      {80, {layers::ActivationKind::kHardswish}},
      {1024, {layers::ActivationKind::kMish}}};
  for (const auto& [channels, activation] : activations) {
    Block block(channels, 21, {2, 1, 4});
    block.norm.activation = activation;
    const auto on_device = [&](const at::Tensor& map) {
      return map.to(at::kCUDA, type).contiguous(at::MemoryFormat::ChannelsLast);
    };
    const at::Tensor y = on_device(block.y);
    const at::Tensor dout = on_device(block.dout);
    const at::Tensor weight = block.weight.to(at::kCUDA, weights);
    const at::Tensor bias = block.bias.to(at::kCUDA, weights);
    // The CPU gets the values of the device, which are rounded.
    const at::Tensor y_cpu = y.cpu().to(at::kDouble);
    const at::Tensor dout_cpu = dout.cpu().to(at::kDouble);
    const auto groups = static_cast<int64_t>(block.norm.groups.size());
    const auto values = [&] {
      return at::empty({groups, 2, channels},
                       at::TensorOptions(at::kCUDA).dtype(at::kDouble));
    };

    const at::Tensor running_cpu = at::zeros({2 * channels}, at::kDouble);
    const at::Tensor running = running_cpu.to(at::kCUDA);
    const at::Tensor statistics_cpu =
        kernels::batch_statistics(y_cpu, block.norm, 1e-3, running_cpu);
    const at::Tensor statistics = values();
    kernels.batch_statistics(y, block.groups, 1e-3, {statistics, running});
    EXPECT_LE(deviation(statistics, statistics_cpu), 1e-5);
    EXPECT_LE(deviation(running, running_cpu), 1e-5);
    // Statistics derived from sums must equal those computed directly.
    const at::Tensor sums = values(), of_sums = values();
    kernels.channel_sums(y, block.groups, sums);
    kernels.statistics_of_sums(sums, block.groups, 1e-3, {of_sums, {}});
    EXPECT_TRUE(of_sums.equal(statistics));
    statistics.copy_(statistics_cpu);

    const at::Tensor out = at::empty_like(y);
    const kernels::NormedMap map = {
        y, block.groups, statistics, weight, bias, block.norm.activation};
    kernels.normalise_and_activate(map, out);
    EXPECT_LE(deviation(out, kernels::normalise_and_activate(
                                 y_cpu, statistics_cpu, block.weight,
                                 block.bias, block.norm)),
              rounding);

    const auto gradient_sums = [&] {
      const kernels::GradientSumsResult result = {
          at::empty_like(weight), at::empty_like(bias), values(), values()};
      kernels.activation_gradient_sums(map, dout, result);
      return result;
    };
    const kernels::GradientSumsResult result = gradient_sums();
    const at::Tensor means = values();
    kernels.means_of_sums(result.sums, block.groups, means);
    EXPECT_TRUE(means.equal(result.means));
    const at::Tensor dy = at::empty_like(y);
    kernels.norm_gradient(map, dout, means, dy);
    const kernels::GroupedBatchNormGradients gradients =
        kernels::grouped_batch_norm_gradients(
            dout_cpu.clone(at::MemoryFormat::ChannelsLast), y_cpu,
            statistics_cpu, block.weight, block.bias, block.norm);
    EXPECT_LE(deviation(dy, gradients.dy), rounding);
    EXPECT_LE(deviation(result.weight_gradient, gradients.dnorm_weight),
              rounding);
    EXPECT_LE(deviation(result.bias_gradient, gradients.dnorm_bias), rounding);
    EXPECT_TRUE(gradient_sums().sums.equal(result.sums))
        << "not the same bits again";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DeviceBatchNorm,
                         ::testing::Values(at::kDouble, at::kFloat,
                                           at::kBFloat16, at::kHalf));

// Compares a whole block, with LibTorch's convolution, between the device and
// the CPU.
TEST(DeviceBlock, EqualsTheCpus) {
  HEADROOM_NEEDS_DEVICE();
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const model::BlockCase block{8, 24, 3, 2, 1, 20, 16, {4, 1, 3}, type};
    // TensorFloat-32 is switched off, because it is not under test.
    at::globalContext().setAllowTF32CuDNN(false);
    model::BlockTensors cpu = model::random_tensors(block, 7);
    model::BlockTensors device = cpu;
    for (at::Tensor* leaf_tensor :
         {&device.x, &device.weight, &device.norm_weight, &device.norm_bias}) {
      *leaf_tensor = model::leaf(leaf_tensor->to(at::kCUDA));
    }
    const at::Tensor out = model::conv_block(model::arguments_of(block, cpu),
                                             model::training_context(block));
    out.backward(cpu.dout);
    kernels::set_device_kernels(at::kCUDA, &plugin().api->kernels());
    const at::Tensor device_out = model::conv_block(
        model::arguments_of(block, device), model::training_context(block));
    device_out.backward(device.dout.to(at::kCUDA));
    kernels::set_device_kernels(at::kCUDA, nullptr);
    const double tolerance = type == at::kDouble ? 1e-12 : 2e-5;
    EXPECT_LE(model::relative_error(device_out.cpu(), out), tolerance);
    for (size_t i = 0; i < cpu.leaves().size(); ++i) {
      EXPECT_LE(model::relative_error(device.leaves()[i].grad().cpu(),
                                      cpu.leaves()[i].grad()),
                tolerance)
          << "leaf " << i;
    }
  }
}

}  // namespace
}  // namespace headroom::cuda
