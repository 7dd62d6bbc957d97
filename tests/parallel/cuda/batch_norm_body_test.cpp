// Compares the CUDA kernels of batch norm and activation, run on the CPU
// (tests/support/host_cuda), with the CPU's own implementation.
#include "parallel/cuda/kernels/batch_norm_body.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "parallel/cuda/kernels/launch.h"
#include "worker/kernels/cpu/batch_norm_passes.h"

namespace headroom::cuda {
namespace {

template <typename T>
constexpr ElementType kType =
    std::is_same_v<T, double>          ? ElementType::kFloat64
    : std::is_same_v<T, float>         ? ElementType::kFloat32
    : std::is_same_v<T, c10::BFloat16> ? ElementType::kBFloat16
                                       : ElementType::kFloat16;

struct Case {
  int64_t channels;
  std::vector<int64_t> begins;  // the first pixel of each group
  int64_t gradient_stride;
  layers::ActivationFunction activation = {};
};

// Random input for a launch: a map with groups, whose channels have means far
// from 0; its gradient, which is a slice of a tensor with more channels; and
// the buffers of the launch.
template <typename T>
class Launch {
 public:
  using A = Accumulator<T>;

  Launch(const Case& test, int multiprocessors) : case_(test) {
    const int64_t pixels = case_.begins.back();
    const int64_t channels = case_.channels;
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < pixels * channels; ++i) {
      y_.push_back(static_cast<T>(normal(random) + 5.0f * (i % channels % 3)));
    }
    for (int64_t i = 0; i < pixels * case_.gradient_stride; ++i) {
      gradient_.push_back(static_cast<T>(normal(random)));
    }
    for (int64_t c = 0; c < channels; ++c) {
      weight_.push_back(static_cast<A>(1 + normal(random) / 4));
      bias_.push_back(static_cast<A>(normal(random)));
    }
    const auto groups = static_cast<int64_t>(case_.begins.size()) - 1;
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t c = 0; c < channels; ++c)
        statistics_.push_back(5.0 * (c % 3) + normal(random) / 8);
      for (int64_t c = 0; c < channels; ++c)
        statistics_.push_back(1 + 0.25 * (c % 2));
      for (int64_t c = 0; c < 2 * channels; ++c)
        means_.push_back(normal(random) / 8);
    }
    result_.resize(y_.size());

    arguments_.type = kType<T>;
    arguments_.y = y_.data();
    arguments_.gradient = gradient_.data();
    arguments_.gradient_stride = case_.gradient_stride;
    arguments_.result = result_.data();
    arguments_.statistics = statistics_.data();
    arguments_.weight = weight_.data();
    arguments_.bias = bias_.data();
    arguments_.means = means_.data();
    arguments_.groups.count = static_cast<int>(groups);
    std::copy(case_.begins.begin(), case_.begins.end(),
              arguments_.groups.begin);
    arguments_.channels = channels;
    arguments_.activation = case_.activation;
    arguments_.multiprocessors = multiprocessors;
    partial_.resize(static_cast<size_t>(partial_bytes(arguments_)) / sizeof(A),
                    A(NAN));
    arguments_.partial = partial_.data();
  }

  // All results of a summing pass.
  struct Sums {
    std::vector<double> sums, statistics, running, means;
    std::vector<A> weight_gradient, bias_gradient;
  };
  Sums sums(bool of_gradients) {
    Sums all;
    const auto channels = static_cast<size_t>(case_.channels);
    all.sums.resize(statistics_.size(), NAN);
    all.statistics = all.means = all.sums;
    all.running.resize(2 * channels, 1);
    all.weight_gradient.resize(channels, A(NAN));
    all.bias_gradient = all.weight_gradient;
    std::vector<unsigned> arrivals(kMostTiles);
    SumTargets to;
    to.sums = all.sums.data();
    to.arrivals = arrivals.data();
    for (int g = 0; g < arguments_.groups.count; ++g) to.values[g] = values(g);
    if (of_gradients) {
      to.means = all.means.data();
      to.weight_gradient = all.weight_gradient.data();
      to.bias_gradient = all.bias_gradient.data();
      EXPECT_EQ(headroom_activation_gradient_sums(&arguments_, &to, nullptr),
                0);
    } else {
      to.statistics = all.statistics.data();
      to.running = all.running.data();
      to.epsilon = kEpsilon;
      to.counted = kCounted;
      EXPECT_EQ(headroom_channel_sums(&arguments_, &to, nullptr), 0);
    }
    EXPECT_EQ(std::ranges::count(arrivals, 0u), kMostTiles);
    return all;
  }

  const std::vector<T>& result(bool of_gradients) {
    std::ranges::fill(result_, T(NAN));
    EXPECT_EQ(of_gradients
                  ? headroom_norm_gradient(&arguments_, nullptr)
                  : headroom_normalise_and_activate(&arguments_, nullptr),
              0);
    return result_;
  }

  static constexpr double kEpsilon = 1e-3;
  static constexpr uint64_t kCounted = 0b101;  // the groups that count, as bits

  // The number of values of a group: larger than the local one, as if the group
  // had samples on another rank.
  double values(int group) const {
    return static_cast<double>(case_.begins[group + 1] - case_.begins[group] +
                               7);
  }
  size_t channels() const { return static_cast<size_t>(case_.channels); }
  int groups() const { return arguments_.groups.count; }

  // The results of the CPU's implementation in double, for all groups.
  struct Reference {
    std::vector<double> value_sums, gradient_sums, out, dy;
  };
  Reference reference() const {
    Reference all;
    const int64_t channels = case_.channels;
    const std::vector<double> weight(weight_.begin(), weight_.end());
    const std::vector<double> bias(bias_.begin(), bias_.end());
    for (size_t g = 0; g + 1 < case_.begins.size(); ++g) {
      const int64_t begin = case_.begins[g];
      const int64_t pixels = case_.begins[g + 1] - begin;
      std::vector<double> y(pixels * channels), dout(pixels * channels);
      for (int64_t p = 0; p < pixels; ++p) {
        for (int64_t c = 0; c < channels; ++c) {
          y[p * channels + c] =
              static_cast<double>(y_[(begin + p) * channels + c]);
          dout[p * channels + c] = static_cast<double>(
              gradient_[(begin + p) * case_.gradient_stride + c]);
        }
      }
      const double* of_group = statistics_.data() + g * 2 * channels;
      const double* means = means_.data() + g * 2 * channels;
      const auto n = static_cast<size_t>(channels);
      const kernels::ChannelNorm norm = {{of_group, n},
                                         {of_group + channels, n},
                                         weight,
                                         bias,
                                         case_.activation};
      std::vector<double> first(n), second(n), out(y.size()), dz(y.size());
      kernels::channel_sums<double>(y.data(), pixels, first, second);
      append(all.value_sums, first);
      append(all.value_sums, second);
      headroom::kernels::batch_norm_activation<double>(y.data(), out.data(),
                                                       pixels, norm);
      append(all.out, out);
      kernels::batch_norm_activation_backward<double>(
          y.data(), dout.data(), channels, dz.data(), pixels, norm, first,
          second);
      append(all.gradient_sums, first);
      append(all.gradient_sums, second);
      kernels::batch_norm_backward<double>(y.data(), dz.data(), pixels, norm,
                                           {means, n}, {means + channels, n});
      append(all.dy, dz);
    }
    return all;
  }

 private:
  static void append(std::vector<double>& to, const std::vector<double>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }

  const Case case_;
  std::vector<T> y_, gradient_, result_;
  std::vector<A> weight_, bias_, partial_;
  std::vector<double> statistics_, means_;
  BatchNormArguments arguments_;
};

// Returns the largest deviation, divided by the largest magnitude of the
// reference.
template <typename Values>
double deviation(const Values& values, const std::vector<double>& reference) {
  EXPECT_EQ(values.size(), reference.size());
  double most = 0, scale = 1e-30;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double off = std::abs(static_cast<double>(values[i]) - reference[i]);
    if (!(off <= most)) most = off;  // keeps a NaN
    scale = std::max(scale, std::abs(reference[i]));
  }
  return most / scale;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {3, {0, 126, 315}, 3},       // channels that do not fill a vector
      {8, {0, 9801}, 8},           // several chunks
      {24, {0, 63, 63, 500}, 40},  // an empty group, a wider gradient
      {20, {0, 1, 700}, 23},       // a gradient that is not aligned
      {520, {0, 300}, 520},        // several tiles
      {24, {0, 500}, 40, layers::kRelu},
      {24, {0, 500}, 24, {layers::ActivationKind::kLeaky, 0.1}},
      {24, {0, 500}, 24, {layers::ActivationKind::kHardswish}},
      {24, {0, 500}, 24, {layers::ActivationKind::kMish}},
  };
  return all;
}

template <typename T>
class BatchNormBody : public ::testing::Test {};
using Elements = ::testing::Types<double, float, c10::BFloat16, c10::Half>;
TYPED_TEST_SUITE(BatchNormBody, Elements);

// The rounding error of a result and of sums in the accumulator of T.
template <typename T>
constexpr double kRounding = std::is_same_v<T, double>          ? 1e-13
                             : std::is_same_v<T, float>         ? 1e-6
                             : std::is_same_v<T, c10::BFloat16> ? 4e-3
                                                                : 6e-4;
template <typename T>
constexpr double kSums = std::is_same_v<T, double> ? 1e-13 : 2e-6;

// The launch has few blocks of many pixels, or many blocks of few pixels.
TYPED_TEST(BatchNormBody, EqualsTheCpus) {
  using T = TypeParam;
  for (const int multiprocessors : {1, 40}) {
    for (const Case& test : cases()) {
      SCOPED_TRACE(std::to_string(test.channels) + " channels, activation " +
                   std::to_string(static_cast<int>(test.activation.kind)));
      Launch<T> launch(test, multiprocessors);
      const auto reference = launch.reference();
      EXPECT_LE(deviation(launch.sums(false).sums, reference.value_sums),
                kSums<T>);
      EXPECT_LE(deviation(launch.sums(true).sums, reference.gradient_sums),
                kSums<T>);
      EXPECT_LE(deviation(launch.result(false), reference.out), kRounding<T>);
      EXPECT_LE(deviation(launch.result(true), reference.dy), kRounding<T>);
    }
  }
}

// The last block derives these values from the sums, group after group.
TYPED_TEST(BatchNormBody, WritesTheValuesDerivedFromItsSums) {
  using T = TypeParam;
  for (const Case& test : cases()) {
    SCOPED_TRACE(std::to_string(test.channels) + " channels");
    Launch<T> launch(test, 8);
    const auto values = launch.sums(false), gradients = launch.sums(true);
    const size_t channels = launch.channels();
    std::vector<double> statistics, means, running(2 * channels, 1.0);
    std::vector<double> of_weight(channels), of_bias(channels);
    for (int g = 0; g < launch.groups(); ++g) {
      const double n = launch.values(g);
      const double* const sums = values.sums.data() + g * 2 * channels;
      const double* const dz = gradients.sums.data() + g * 2 * channels;
      std::vector<double> deviations;
      for (size_t c = 0; c < channels; ++c) {
        const double mean = sums[c] / n;
        const double centred =
            std::max(0.0, sums[channels + c] - n * mean * mean);
        statistics.push_back(mean);
        deviations.push_back(1 / std::sqrt(centred / n + Launch<T>::kEpsilon));
        if ((Launch<T>::kCounted >> g & 1) != 0) {
          running[c] += mean;
          running[channels + c] += centred / (n - 1);
        }
        of_bias[c] += dz[c];
        of_weight[c] += dz[channels + c];
      }
      statistics.insert(statistics.end(), deviations.begin(), deviations.end());
      for (size_t i = 0; i < 2 * channels; ++i) means.push_back(dz[i] / n);
    }
    EXPECT_LE(deviation(values.statistics, statistics), 1e-12);
    EXPECT_LE(deviation(values.running, running), 1e-12);
    EXPECT_LE(deviation(gradients.means, means), 1e-15);
    constexpr double kRounded = std::is_same_v<T, double> ? 1e-15 : 1e-7;
    EXPECT_LE(deviation(gradients.weight_gradient, of_weight), kRounded);
    EXPECT_LE(deviation(gradients.bias_gradient, of_bias), kRounded);
  }
}

TEST(MapGrid, FillsBlocksVectorsAndMultiprocessors) {
  BatchNormArguments arguments;
  arguments.type = ElementType::kBFloat16;
  arguments.channels = 64;
  arguments.gradient_stride = 64;
  arguments.groups.count = 1;
  arguments.groups.begin[0] = 0;
  arguments.groups.begin[1] = 16 * 160 * 160;
  arguments.multiprocessors = 132;
  MapGrid grid = map_grid(arguments, /*sums=*/true);
  EXPECT_EQ(grid.vector, 8);
  EXPECT_EQ(grid.size_x, 8);
  EXPECT_EQ(grid.size_y, 32);
  EXPECT_EQ(grid.tiles, 1);
  EXPECT_EQ(grid.chunks, 4 * 132) << "one wave: the last block adds up others'";
  grid = map_grid(arguments, /*sums=*/false);
  EXPECT_GE(grid.chunks, 4 * 132);
  EXPECT_LE(grid.chunk_pixels, 32 * grid.size_y);

  arguments.channels = arguments.gradient_stride = 512;
  arguments.groups.begin[1] = 16 * 20 * 20;
  grid = map_grid(arguments, /*sums=*/true);
  EXPECT_EQ(grid.tiles, 8);
  EXPECT_EQ(grid.chunk_pixels, 4 * grid.size_y) << "no thread loads fewer";
  EXPECT_EQ(grid.chunks, 50);

  arguments.gradient_stride = 515;
  EXPECT_EQ(map_grid(arguments, true).vector, 1);
  arguments.gradient_stride = 512;
  arguments.y = reinterpret_cast<const void*>(uintptr_t{0x1002});
  EXPECT_EQ(map_grid(arguments, true).vector, 1);
}

// Tests every layer of yolov5s at batch 16 and 640 px on a card with 132
// multiprocessors.
TEST(MapGrid, LeavesNoMultiprocessorOfALargeMapIdle) {
  for (const auto& [channels, side] : std::vector<std::pair<int64_t, int64_t>>{
           {32, 320}, {64, 160}, {128, 80}, {256, 40}, {512, 20}}) {
    BatchNormArguments arguments;
    arguments.type = ElementType::kBFloat16;
    arguments.channels = arguments.gradient_stride = channels;
    arguments.groups.count = 1;
    arguments.groups.begin[0] = 0;
    arguments.groups.begin[1] = 16 * side * side;
    arguments.multiprocessors = 132;
    for (const bool sums : {true, false}) {
      const MapGrid grid = map_grid(arguments, sums);
      EXPECT_GE(grid.tiles * grid.chunks, side >= 40 ? 4 * 132 : 2 * 132)
          << channels << " channels";
    }
  }
}

}  // namespace
}  // namespace headroom::cuda
