// The kernels' text on the CPU, thread after thread, against the CPU's own
// batch norm and activation.
#include "parallel/cuda/kernels/batch_norm_body.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "parallel/cuda/kernels/launch.h"
#include "tests/parallel/cuda/emulated_launch.h"
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
  std::vector<int64_t> begins;  // pixels
  int64_t gradient_stride;
  layers::ActivationFunction activation = {};
};

// A map with groups whose channels have means far from 0, its gradient in a
// wider map, and room for all that a launch needs.
template <typename T>
class Launch {
 public:
  using A = Accumulator<T>;

  explicit Launch(const Case& test) : case_(test) {
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
    sums_.resize(statistics_.size(), NAN);

    BatchNormArguments arguments;
    arguments.type = kType<T>;
    arguments.y = y_.data();
    arguments.gradient = gradient_.data();
    arguments.gradient_stride = case_.gradient_stride;
    arguments.result = result_.data();
    arguments.groups.count = static_cast<int>(groups);
    std::copy(case_.begins.begin(), case_.begins.end(), arguments.groups.begin);
    arguments.channels = channels;
    shape_ = block_shape(arguments);
    partial_.resize(partial_elements(arguments), A(NAN));
    map_ = {y_.data(),
            gradient_.data(),
            case_.gradient_stride,
            result_.data(),
            statistics_.data(),
            weight_.data(),
            bias_.data(),
            means_.data(),
            partial_.data(),
            arguments.groups,
            channels,
            chunks_of(arguments.groups, shape_),
            case_.activation};
  }

  // Calls f with the vector width as a constant, as the launcher does.
  template <typename F>
  void with_width(const F& f) {
    constexpr int kWide = 16 / sizeof(T);
    if (shape_.vector == kWide) {
      f(std::integral_constant<int, kWide>());
    } else {
      ASSERT_EQ(shape_.vector, 1);
      f(std::integral_constant<int, 1>());
    }
  }

  const std::vector<double>& sums(bool of_gradients) {
    with_width([&](auto width) {
      if (of_gradients) {
        summing_pass<T, width, true>(shape_, map_, sums_.data());
      } else {
        summing_pass<T, width, false>(shape_, map_, sums_.data());
      }
    });
    return sums_;
  }

  const std::vector<T>& result(bool of_gradients) {
    with_width([&](auto width) {
      if (of_gradients) {
        writing_pass<T, width, true>(shape_, map_);
      } else {
        writing_pass<T, width, false>(shape_, map_);
      }
    });
    return result_;
  }

  // The CPU's implementation, in double, of every group.
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
  std::vector<double> statistics_, means_, sums_;
  BlockShape shape_;
  BatchNormMap<T> map_;
};

// Largest deviation over the reference's largest magnitude.
template <typename Values>
double deviation(const Values& values, const std::vector<double>& reference) {
  EXPECT_EQ(values.size(), reference.size());
  double most = 0, scale = 1e-30;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double off = std::abs(static_cast<double>(values[i]) - reference[i]);
    if (!(off <= most)) most = off;  // a NaN stays
    scale = std::max(scale, std::abs(reference[i]));
  }
  return most / scale;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {3, {0, 126, 315}, 3},       // channels that fill no vector
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

// Of a result's rounding, and of sums in T's accumulator.
template <typename T>
constexpr double kRounding = std::is_same_v<T, double>          ? 1e-13
                             : std::is_same_v<T, float>         ? 1e-6
                             : std::is_same_v<T, c10::BFloat16> ? 4e-3
                                                                : 6e-4;
template <typename T>
constexpr double kSums = std::is_same_v<T, double> ? 1e-13 : 2e-6;

TYPED_TEST(BatchNormBody, EqualsTheCpus) {
  using T = TypeParam;
  for (const Case& test : cases()) {
    SCOPED_TRACE(std::to_string(test.channels) + " channels, activation " +
                 std::to_string(static_cast<int>(test.activation.kind)));
    Launch<T> launch(test);
    const auto reference = launch.reference();
    EXPECT_LE(deviation(launch.sums(false), reference.value_sums), kSums<T>);
    EXPECT_LE(deviation(launch.sums(true), reference.gradient_sums), kSums<T>);
    EXPECT_LE(deviation(launch.result(false), reference.out), kRounding<T>);
    EXPECT_LE(deviation(launch.result(true), reference.dy), kRounding<T>);
  }
}

TEST(BlockShape, FillsBlocksAndVectors) {
  BatchNormArguments arguments;
  arguments.type = ElementType::kBFloat16;
  arguments.channels = 64;
  arguments.gradient_stride = 64;
  BlockShape shape = block_shape(arguments);
  EXPECT_EQ(shape.vector, 8);
  EXPECT_EQ(shape.size_x, 8);
  EXPECT_EQ(shape.size_y, 32);
  EXPECT_EQ(shape.tiles, 1);
  arguments.channels = 1024;
  arguments.gradient_stride = 1024;
  shape = block_shape(arguments);
  EXPECT_EQ(shape.size_x, 32);
  EXPECT_EQ(shape.tiles, 4);
  arguments.gradient_stride = 1027;
  EXPECT_EQ(block_shape(arguments).vector, 1);
  arguments.gradient_stride = 1024;
  arguments.y = reinterpret_cast<const void*>(uintptr_t{0x1002});
  EXPECT_EQ(block_shape(arguments).vector, 1);
}

}  // namespace
}  // namespace headroom::cuda
