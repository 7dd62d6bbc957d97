// Compares the kernels of max pooling with LibTorch's for the CPU: the chosen
// cells, with ties, NaN and infinities, and the distribution of gradients.

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>

#include <limits>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/cuda/kernel_arguments.h"
#include "tests/parallel/cuda/kernels_under_test.h"

namespace headroom::cuda {
namespace {

struct Case {
  int64_t samples, channels, rows, width, window, rows_beyond;
};

std::vector<Case> cases() {
  return {
      {2, 16, 20, 20, 5, 2},   // as in SPPF
      {1, 3, 7, 9, 3, 1},      // channels that do not fill a vector
      {2, 8, 13, 6, 9, 4},     // windows wider than the map
      {1, 24, 15, 31, 13, 6},  // three threads over the channels
      {1, 320, 2, 3, 5, 2},    // several blocks over the channels
      {1, 40, 1, 1, 5, 2},     // one cell
      {3, 16, 12, 7, 5, 0},    // some rows belong to another rank
      {1, 8, 9, 4, 5, 1},      // some rows belong to another rank, near an edge
      {1, 8, 17, 18, 15, 7},   // the widest window
      {1, 8, 3, 5, 1, 0},      // a copy
      {0, 8, 4, 4, 5, 2},      // no sample
  };
}

std::string text(const Case& test) {
  return std::to_string(test.channels) + " channels, " +
         std::to_string(test.rows) + " x " + std::to_string(test.width) +
         ", window " + std::to_string(test.window);
}

at::Tensor channels_last(const at::Tensor& map) {
  return map.contiguous(at::MemoryFormat::ChannelsLast);
}

// A map without equal values, and maps in which the maximum is hard to choose.
std::vector<at::Tensor> maps(const Case& test) {
  const std::vector<int64_t> sizes = {test.samples, test.channels, test.rows,
                                      test.width};
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor few = at::randint(0, 3, sizes, at::kDouble);
  return {at::randn(sizes, at::kDouble), few,
          // These maps have NaN and infinities of both signs.
          at::where(few.eq(0), std::numeric_limits<double>::quiet_NaN(),
                    at::where(few.eq(1), -infinity, few)),
          at::where(few.eq(0), infinity, few),
          at::full(sizes, -infinity, at::kDouble)};
}

// Converts the position of each chosen cell in the map to its number within its
// window.
at::Tensor numbers_of(const at::Tensor& indices, const Case& test) {
  const at::Tensor row = at::arange(indices.size(2)).view({-1, 1});
  const at::Tensor column = at::arange(test.width);
  const at::Tensor down =
      indices.div(test.width, "floor") - row + test.rows_beyond;
  const at::Tensor across =
      indices.remainder(test.width) - column + test.window / 2;
  return (down * test.window + across).to(at::kByte);
}

bool are_same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() &&
         (a.eq(b) | (a.isnan() & b.isnan())).all().item<bool>();
}

class DeviceMaxPool : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(DeviceMaxPool, ChooseLibTorchsCells) {
  HEADROOM_NEEDS_KERNELS();
  at::manual_seed(3);
  const KernelsUnderTest& device = under_test();
  for (const Case& test : cases()) {
    SCOPED_TRACE(text(test));
    for (const at::Tensor& map : maps(test)) {
      const at::Tensor x = channels_last(map.to(GetParam()));
      // Double represents every value exactly, so the choices are the same.
      const auto [expected, indices] = at::max_pool2d_with_indices(
          x.to(at::kDouble).contiguous(), {test.window, test.window}, {1, 1},
          {test.rows_beyond, test.window / 2});
      const auto empty = [&](at::ScalarType of) {
        return at::empty(expected.sizes(),
                         at::TensorOptions(device.device).dtype(of),
                         at::MemoryFormat::ChannelsLast);
      };
      const at::Tensor there = device.there(x);
      const at::Tensor out = empty(GetParam()), choices = empty(at::kByte);
      device.kernels->max_pool(there, test.window, out, choices);
      EXPECT_TRUE(are_same(out.cpu().to(at::kDouble), expected));
      EXPECT_TRUE(choices.cpu().equal(numbers_of(indices, test)));
      const at::Tensor alone = at::full_like(out, 7);
      device.kernels->max_pool(there, test.window, alone, {});
      EXPECT_TRUE(are_same(alone, out));
    }
  }
}

// Gradients are whole numbers, so every order of addition gives the same sum,
// and the difference to double is a single rounding. They are a slice of a map
// with more channels, once at an aligned offset and once not.
TEST_P(DeviceMaxPool, GiveGradientsToTheChosen) {
  HEADROOM_NEEDS_KERNELS();
  at::manual_seed(4);
  const KernelsUnderTest& device = under_test();
  for (const Case& test : cases()) {
    SCOPED_TRACE(text(test));
    const at::Tensor x = channels_last(maps(test)[1]);
    const auto [expected, indices] = at::max_pool2d_with_indices(
        x.contiguous(), {test.window, test.window}, {1, 1},
        {test.rows_beyond, test.window / 2});
    const at::Tensor choices =
        device.there(channels_last(numbers_of(indices, test)));
    for (const int64_t more : {0, 8, 9}) {
      std::vector<int64_t> sizes = expected.sizes().vec();
      sizes[1] += more;
      const at::Tensor wide =
          channels_last(at::randint(-8, 9, sizes, at::kDouble).to(GetParam()));
      const at::Tensor dout = wide.narrow(1, more, test.channels);
      const at::Tensor dx = device.there(
          channels_last(at::full(x.sizes(), 7, x.options()).to(GetParam())));
      device.kernels->max_pool_gradient(
          device.there(wide).narrow(1, more, test.channels), choices,
          test.window, dx);
      const at::Tensor of_libtorch = at::max_pool2d_with_indices_backward(
          dout.to(at::kDouble).contiguous(), x.contiguous(),
          {test.window, test.window}, {1, 1},
          {test.rows_beyond, test.window / 2}, {1, 1}, false, indices);
      EXPECT_TRUE(dx.cpu().equal(of_libtorch.to(GetParam())))
          << more << " more";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DeviceMaxPool,
                         ::testing::Values(at::kDouble, at::kFloat,
                                           at::kBFloat16, at::kHalf),
                         [](const auto& type) {
                           return std::string(c10::toString(type.param));
                         });

at::Tensor map(int64_t channels, int64_t rows, at::ScalarType type) {
  return at::empty(
      {2, channels, rows, 6},
      at::TensorOptions(type).memory_format(at::MemoryFormat::ChannelsLast));
}

TEST(PoolArguments, LoadVectorsWhereTheyLieAligned) {
  const at::Tensor x = map(16, 8, at::kBFloat16), out = x.clone();
  EXPECT_TRUE(pool_arguments(x, 5, out, {}).is_aligned);
  const at::Tensor odd = map(20, 8, at::kBFloat16);
  EXPECT_FALSE(pool_arguments(odd, 5, odd.clone(), {}).is_aligned);
  const at::Tensor wide = map(40, 8, at::kBFloat16);
  const at::Tensor choices = map(16, 8, at::kByte);
  for (const int64_t first : {0, 8, 4}) {
    EXPECT_EQ(pool_gradient_arguments(wide.narrow(1, first, 16), choices, 5, x)
                  .is_aligned,
              first != 4);
  }
}

TEST(PoolArguments, ForOtherMapsAreRefused) {
  const at::Tensor x = map(16, 8, at::kFloat), out = x.clone();
  EXPECT_THROW(pool_arguments(x, 4, out, {}), CheckFailure);
  EXPECT_THROW(pool_arguments(x, 17, out, {}), CheckFailure);
  EXPECT_THROW(pool_arguments(x, 5, map(16, 7, at::kFloat), {}), CheckFailure);
  EXPECT_THROW(pool_arguments(x, 5, map(16, 2, at::kFloat), {}), CheckFailure);
  EXPECT_THROW(pool_arguments(x, 5, map(8, 8, at::kFloat), {}), CheckFailure);
  EXPECT_THROW(pool_arguments(x, 5, map(16, 8, at::kHalf), {}), CheckFailure);
  EXPECT_THROW(pool_arguments(x, 5, out, map(16, 8, at::kLong)), CheckFailure);
  EXPECT_THROW(pool_gradient_arguments(out, {}, 5, x), CheckFailure);
}

}  // namespace
}  // namespace headroom::cuda
