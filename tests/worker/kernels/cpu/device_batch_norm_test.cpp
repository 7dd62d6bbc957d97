// Convolution blocks with the batch-norm kernels of a device. The source text
// of the kernels is compiled for the CPU here, so that all but the GPU itself
// is tested.
#include "worker/kernels/cpu/device_batch_norm.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <vector>

#include "parallel/base/check.h"
#include "tests/support/test_device/emulated_on_cpu.h"
#include "tests/worker/model/conv_block_fixture.h"

namespace headroom::kernels {
namespace {

// Adds the sums of a second rank with the same samples.
class TwiceTheSame final : public StatisticsExchange {
 public:
  void sum(std::span<double> values) override {
    for (double& value : values) value *= 2;
  }
  void sum_tensor(const at::Tensor& values) override { values.mul_(2); }
};

class DeviceBlock : public testing::TestWithParam<model::BlockCase> {};

TEST_P(DeviceBlock, EqualsAtenOperators) {
  const model::BlockCase& block = GetParam();
  const double tolerance = block.scalar_type == at::kDouble ? 1e-12 : 2e-5;
  model::BlockTensors tensors = model::random_tensors(block, 7);
  model::BlockTensors expected = model::copied(tensors, at::kDouble);
  at::Tensor out;
  {
    const EmulatedOnCpu device;
    take_launches();
    out = model::conv_block(model::arguments_of(block, tensors),
                            model::training_context(block));
    out.backward(tensors.dout);
    EXPECT_EQ(take_launches()["batch norm"], 4);
  }
  const at::Tensor reference = model::reference_block(block, expected);
  reference.backward(expected.dout);

  EXPECT_EQ(out.scalar_type(), block.scalar_type);
  EXPECT_LE(model::relative_error(out, reference), tolerance);
  const std::vector<at::Tensor> leaves = tensors.leaves();
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_EQ(leaves[i].grad().scalar_type(), block.scalar_type);
    EXPECT_LE(
        model::relative_error(leaves[i].grad(), expected.leaves()[i].grad()),
        tolerance)
        << "leaf " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, DeviceBlock,
    testing::Values(
        model::BlockCase{5, 17, 3, 1, 1, 7, 5, {3}, at::kDouble},
        model::BlockCase{8, 16, 3, 2, 1, 9, 11, {2, 2}, at::kDouble},
        model::BlockCase{8, 24, 1, 1, 0, 6, 6, {4, 1, 3}, at::kDouble},
        model::BlockCase{8, 24, 3, 1, 1, 6, 6, {4, 1, 3}, at::kFloat},
        model::BlockCase{3, 5, 1, 1, 0, 13, 3, {1, 2}, at::kFloat},
        model::BlockCase{
            8, 16, 3, 1, 1, 9, 11, {2}, at::kDouble, 8, layers::kRelu},
        model::BlockCase{8,
                         16,
                         3,
                         1,
                         1,
                         9,
                         11,
                         {2},
                         at::kDouble,
                         1,
                         {layers::ActivationKind::kHardswish}},
        model::BlockCase{8,
                         16,
                         3,
                         1,
                         1,
                         9,
                         11,
                         {2},
                         at::kDouble,
                         1,
                         {layers::ActivationKind::kMish}}));

// Inputs of the device's batch-norm functions. The tests compare the results of
// these functions with those of the CPU.
struct Maps {
  at::Tensor y, dout, weight, bias;
  GroupedBatchNorm norm;

  Maps() {
    at::manual_seed(11);
    y = at::randn({6, 10, 5, 4}, at::kDouble)
            .contiguous(at::MemoryFormat::ChannelsLast);
    // The gradient is a slice of a tensor with more channels.
    dout = at::randn({6, 14, 5, 4}, at::kDouble)
               .contiguous(at::MemoryFormat::ChannelsLast)
               .narrow(1, 4, 10);
    weight = at::rand({10}, at::kDouble) + 0.5;
    bias = at::randn({10}, at::kDouble);
    norm.groups = {{0, 1, 1, true}, {1, 4, 3, false}, {4, 6, 2, true}};
  }
};

struct Results {
  at::Tensor sums, statistics, out, dy, dweight, dbias;
};

Results results_of(const Maps& maps) {
  Results all;
  all.sums = at::ones({20}, at::kDouble);
  all.statistics = batch_statistics(maps.y, maps.norm, 1e-3, all.sums);
  all.out = normalise_and_activate(maps.y, all.statistics, maps.weight,
                                   maps.bias, maps.norm);
  const auto gradients = grouped_batch_norm_gradients(
      maps.dout, maps.y, all.statistics, maps.weight, maps.bias, maps.norm);
  all.dy = gradients.dy;
  all.dweight = gradients.dnorm_weight;
  all.dbias = gradients.dnorm_bias;
  return all;
}

void expect_close(const Results& a, const Results& b) {
  EXPECT_LE(model::relative_error(a.sums, b.sums), 1e-12);
  EXPECT_LE(model::relative_error(a.statistics, b.statistics), 1e-12);
  EXPECT_LE(model::relative_error(a.out, b.out), 1e-12);
  EXPECT_LE(model::relative_error(a.dy, b.dy), 1e-12);
  EXPECT_LE(model::relative_error(a.dweight, b.dweight), 1e-12);
  EXPECT_LE(model::relative_error(a.dbias, b.dbias), 1e-12);
}

TEST(DeviceBatchNorm, CountsGroupsAsTheCpuDoes) {
  const Maps maps;
  const Results expected = results_of(maps);
  const EmulatedOnCpu device;
  expect_close(results_of(maps), expected);
}

TEST(DeviceBatchNorm, SumsOfAnExchangeAreTheGroups) {
  TwiceTheSame exchange;
  Maps maps;
  maps.norm.exchange = &exchange;
  for (BatchNormGroup& group : maps.norm.groups) group.global_samples *= 2;
  const Results expected = results_of(maps);
  const EmulatedOnCpu device;
  expect_close(results_of(maps), expected);
}

// There are more groups than one launch of a kernel takes, and only some of
// them count.
TEST(DeviceBatchNorm, ManyGroupsAreThoseOfTheCpu) {
  Maps maps;
  const int64_t samples = 150;
  maps.y = at::randn({samples, 10, 2, 3}, at::kDouble)
               .contiguous(at::MemoryFormat::ChannelsLast);
  maps.dout = at::randn({samples, 10, 2, 3}, at::kDouble)
                  .contiguous(at::MemoryFormat::ChannelsLast);
  maps.norm.groups.clear();
  for (int64_t first = 0; first < samples; first += 2) {
    maps.norm.groups.push_back({first, first + 2, 2, first % 3 == 0});
  }
  const Results expected = results_of(maps);
  const EmulatedOnCpu device;
  expect_close(results_of(maps), expected);
}

TEST(DeviceBatchNorm, AMicroBatchWithoutSamplesHasNoGradient) {
  Maps maps;
  maps.y = maps.y.narrow(0, 0, 0);
  maps.dout = maps.dout.narrow(0, 0, 0);
  maps.norm.groups.clear();
  const EmulatedOnCpu device;
  const Results results = results_of(maps);
  EXPECT_EQ(results.dy.numel(), 0);
  EXPECT_EQ(results.dweight.abs().sum().item<double>(), 0);
  EXPECT_EQ(results.dbias.abs().sum().item<double>(), 0);
}

TEST(DeviceBatchNorm, FixedStatisticsFeedNothingBack) {
  Maps maps;
  maps.norm.groups = {{0, 6, 6, false}};
  maps.norm.fixed_statistics = true;
  const at::Tensor mean = at::randn({10}, at::kDouble);
  const at::Tensor variance = at::rand({10}, at::kDouble) + 0.5;
  const auto gradients = [&] {
    const at::Tensor statistics = running_statistics(mean, variance, 1e-3);
    return grouped_batch_norm_gradients(maps.dout, maps.y, statistics,
                                        maps.weight, maps.bias, maps.norm);
  };
  const auto expected = gradients();
  const EmulatedOnCpu device;
  EXPECT_LE(model::relative_error(gradients().dy, expected.dy), 1e-12);
  EXPECT_LE(
      model::relative_error(gradients().dnorm_weight, expected.dnorm_weight),
      1e-12);
}

TEST(DeviceBatchNorm, AGroupOfOneValueIsRefused) {
  const EmulatedOnCpu device;
  GroupedBatchNorm norm;
  norm.groups = {{0, 1, 1, true}};
  EXPECT_THROW(batch_statistics(at::randn({1, 3, 1, 1}, at::kDouble), norm,
                                1e-3, at::Tensor()),
               CheckFailure);
}

TEST(DeviceKernels, ATensorOfAnotherDeviceIsRefused) {
  const at::Tensor map = at::empty({1, 3, 2, 2}, at::TensorOptions(at::kMeta));
  EXPECT_THROW(device_kernels_for(map), Error);
  EXPECT_EQ(device_kernels_for(at::empty({1, 3, 2, 2})), nullptr);
}

}  // namespace
}  // namespace headroom::kernels
