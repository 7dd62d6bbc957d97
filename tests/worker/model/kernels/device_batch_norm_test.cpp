// The block where its map goes through a device's kernels, which here run their
// text on the CPU: everything but the GPU itself.
#include "worker/model/kernels/device_batch_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "parallel/base/check.h"
#include "tests/parallel/cuda/emulated_launch.h"
#include "tests/worker/model/conv_block_fixture.h"

namespace headroom {
namespace {

class EmulatedKernels final : public MapKernels {
 public:
  int passes = 0;

  void channel_sums(const at::Tensor& y, std::span<const int64_t> begins,
                    const at::Tensor& sums) override {
    run(y, begins, {}, [&](auto width, auto& shape, auto& map) {
      using T = Element<decltype(map)>;
      summing_pass<T, width, false>(shape, map,
                                    sums.mutable_data_ptr<double>());
    });
  }

  void normalise_and_activate(const at::Tensor& y,
                              std::span<const int64_t> begins,
                              const at::Tensor& statistics,
                              const at::Tensor& weight, const at::Tensor& bias,
                              const at::Tensor& out) override {
    run(y, begins, {statistics, weight, bias, {}, {}, out},
        [&](auto width, auto& shape, auto& map) {
          using T = Element<decltype(map)>;
          writing_pass<T, width, false>(shape, map);
        });
  }

  void activation_gradient_sums(const at::Tensor& y, const at::Tensor& dout,
                                std::span<const int64_t> begins,
                                const at::Tensor& statistics,
                                const at::Tensor& weight,
                                const at::Tensor& bias,
                                const at::Tensor& sums) override {
    run(y, begins, {statistics, weight, bias, dout, {}, {}},
        [&](auto width, auto& shape, auto& map) {
          using T = Element<decltype(map)>;
          summing_pass<T, width, true>(shape, map,
                                       sums.mutable_data_ptr<double>());
        });
  }

  void norm_gradient(const at::Tensor& y, const at::Tensor& dout,
                     std::span<const int64_t> begins,
                     const at::Tensor& statistics, const at::Tensor& weight,
                     const at::Tensor& bias, const at::Tensor& means,
                     const at::Tensor& dy) override {
    run(y, begins, {statistics, weight, bias, dout, means, dy},
        [&](auto width, auto& shape, auto& map) {
          using T = Element<decltype(map)>;
          writing_pass<T, width, true>(shape, map);
        });
  }

 private:
  struct Operands {
    at::Tensor statistics, weight, bias, gradient, means, result;
  };
  template <typename Map>
  using Element =
      std::remove_cv_t<std::remove_pointer_t<decltype(std::declval<Map>().y)>>;

  template <typename Pass>
  void run(const at::Tensor& y, std::span<const int64_t> begins,
           const Operands& operands, const Pass& pass) {
    if (y.scalar_type() == at::kFloat) {
      run_as<float>(ElementType::kFloat32, y, begins, operands, pass);
    } else {
      run_as<double>(ElementType::kFloat64, y, begins, operands, pass);
    }
  }

  template <typename T, typename Pass>
  void run_as(ElementType type, const at::Tensor& y,
              std::span<const int64_t> begins, const Operands& operands,
              const Pass& pass) {
    const auto pointer = [](const at::Tensor& tensor, auto zero) {
      return tensor.defined() ? tensor.mutable_data_ptr<decltype(zero)>()
                              : nullptr;
    };
    ++passes;
    BatchNormMap<T> map = {};
    map.y = y.const_data_ptr<T>();
    map.gradient = pointer(operands.gradient, T());
    map.gradient_stride =
        operands.gradient.defined() ? operands.gradient.stride(3) : 0;
    if (map.gradient_stride < y.size(1)) map.gradient_stride = y.size(1);
    map.result = pointer(operands.result, T());
    map.statistics = pointer(operands.statistics, double());
    map.weight = pointer(operands.weight, T());
    map.bias = pointer(operands.bias, T());
    map.means = pointer(operands.means, double());
    map.channels = y.size(1);
    map.groups.count = static_cast<int>(begins.size()) - 1;
    for (size_t g = 0; g < begins.size(); ++g) {
      map.groups.begin[g] = begins[g] * y.size(2) * y.size(3);
    }
    BatchNormArguments arguments;
    arguments.type = type;
    arguments.y = map.y;
    arguments.gradient = map.gradient;
    arguments.gradient_stride = map.gradient_stride;
    arguments.result = map.result;
    arguments.groups = map.groups;
    arguments.channels = map.channels;
    const BlockShape shape = block_shape(arguments);
    map.chunks = chunks_of(map.groups, shape);
    std::vector<T> partial(partial_elements(arguments));
    map.partial = partial.data();
    constexpr int kWide = 16 / sizeof(T);
    if (shape.vector == kWide) {
      pass(std::integral_constant<int, kWide>(), shape, map);
    } else {
      pass(std::integral_constant<int, 1>(), shape, map);
    }
  }
};

// Maps of the CPU go through the kernels while this lives.
class Emulated {
 public:
  Emulated() { set_map_kernels(at::kCPU, &kernels_); }
  ~Emulated() { set_map_kernels(at::kCPU, nullptr); }
  int passes() const { return kernels_.passes; }

 private:
  EmulatedKernels kernels_;
};

// Adds what a second rank with the same samples would.
class TwiceTheSame final : public StatisticsExchange {
 public:
  void sum(std::span<double> values) override {
    for (double& value : values) value *= 2;
  }
};

class DeviceBlock : public testing::TestWithParam<BlockCase> {};

TEST_P(DeviceBlock, EqualsAtenOperators) {
  const BlockCase& block = GetParam();
  const double tolerance = block.scalar_type == at::kDouble ? 1e-12 : 2e-5;
  BlockTensors tensors = random_tensors(block, 7);
  BlockTensors expected = copied(tensors, at::kDouble);
  at::Tensor out;
  {
    const Emulated device;
    out = conv_block(arguments_of(block, tensors), training_context(block));
    out.backward(tensors.dout);
    EXPECT_EQ(device.passes(), 4);
  }
  const at::Tensor reference = reference_block(block, expected);
  reference.backward(expected.dout);

  EXPECT_EQ(out.scalar_type(), block.scalar_type);
  EXPECT_LE(relative_error(out, reference), tolerance);
  const std::vector<at::Tensor> leaves = tensors.leaves();
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_EQ(leaves[i].grad().scalar_type(), block.scalar_type);
    EXPECT_LE(relative_error(leaves[i].grad(), expected.leaves()[i].grad()),
              tolerance)
        << "leaf " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, DeviceBlock,
    testing::Values(BlockCase{5, 17, 3, 1, 1, 7, 5, {3}, at::kDouble},
                    BlockCase{8, 16, 3, 2, 1, 9, 11, {2, 2}, at::kDouble},
                    BlockCase{8, 24, 1, 1, 0, 6, 6, {4, 1, 3}, at::kDouble},
                    BlockCase{8, 24, 3, 1, 1, 6, 6, {4, 1, 3}, at::kFloat},
                    BlockCase{3, 5, 1, 1, 0, 13, 3, {1, 2}, at::kFloat}));

// The functions beneath, where the CPU's own give the reference.
struct Maps {
  at::Tensor y, dout, weight, bias;
  GroupedBatchNorm norm;

  Maps() {
    at::manual_seed(11);
    y = at::randn({6, 10, 5, 4}, at::kDouble)
            .contiguous(at::MemoryFormat::ChannelsLast);
    // A slice of a wider map's gradient.
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
  EXPECT_LE(relative_error(a.sums, b.sums), 1e-12);
  EXPECT_LE(relative_error(a.statistics, b.statistics), 1e-12);
  EXPECT_LE(relative_error(a.out, b.out), 1e-12);
  EXPECT_LE(relative_error(a.dy, b.dy), 1e-12);
  EXPECT_LE(relative_error(a.dweight, b.dweight), 1e-12);
  EXPECT_LE(relative_error(a.dbias, b.dbias), 1e-12);
}

TEST(DeviceBatchNorm, CountsGroupsAsTheCpuDoes) {
  const Maps maps;
  const Results expected = results_of(maps);
  const Emulated device;
  expect_close(results_of(maps), expected);
}

TEST(DeviceBatchNorm, SumsOfAnExchangeAreTheGroups) {
  TwiceTheSame exchange;
  Maps maps;
  maps.norm.exchange = &exchange;
  for (BatchNormGroup& group : maps.norm.groups) group.global_samples *= 2;
  const Results expected = results_of(maps);
  const Emulated device;
  expect_close(results_of(maps), expected);
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
  const Emulated device;
  EXPECT_LE(relative_error(gradients().dy, expected.dy), 1e-12);
  EXPECT_LE(relative_error(gradients().dnorm_weight, expected.dnorm_weight),
            1e-12);
}

TEST(DeviceBatchNorm, AGroupOfOneValueIsRefused) {
  const Emulated device;
  GroupedBatchNorm norm;
  norm.groups = {{0, 1, 1, true}};
  EXPECT_THROW(batch_statistics(at::randn({1, 3, 1, 1}, at::kDouble), norm,
                                1e-3, at::Tensor()),
               CheckFailure);
}

TEST(DeviceBatchNorm, AMapWithoutKernelsIsRefused) {
  const at::Tensor map = at::empty({1, 3, 2, 2}, at::TensorOptions(at::kMeta));
  EXPECT_THROW(map_kernels_for(map), Error);
  EXPECT_EQ(map_kernels_for(at::empty({1, 3, 2, 2})), nullptr);
}

}  // namespace
}  // namespace headroom
