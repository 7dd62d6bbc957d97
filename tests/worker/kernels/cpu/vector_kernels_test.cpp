#include "worker/kernels/cpu/vector_kernels.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace headroom::kernels {
namespace {

std::string name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return "baseline";
    case InstructionSet::kAvx2:
      return "AVX2";
    case InstructionSet::kAvx512:
      return "AVX-512";
  }
  return "unknown";
}

class VectorKernelsTest : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (vector_kernels_of<float>(GetParam()) == nullptr)
      GTEST_SKIP() << "this processor has no " << name(GetParam());
  }
};

double silu(double z) { return z / (1 + std::exp(-z)); }

double silu_derivative(double z) {
  const double s = 1 / (1 + std::exp(-z));
  return s * (1 + z / (1 + std::exp(z)));
}

// The activations and their derivatives in double. The derivatives are written
// by hand; that of Mish is composed of its parts.
double value_of(layers::ActivationKind kind, double z) {
  switch (kind) {
    case layers::ActivationKind::kSilu:
      return silu(z);
    case layers::ActivationKind::kLeaky:
      return z > 0 ? z : 0.1 * z;
    case layers::ActivationKind::kHardswish:
      return z * std::clamp(z + 3, 0.0, 6.0) / 6;
    case layers::ActivationKind::kMish:
      return z * std::tanh(std::log1p(std::exp(z)));
  }
  return NAN;
}

double derivative_of(layers::ActivationKind kind, double z) {
  switch (kind) {
    case layers::ActivationKind::kSilu:
      return silu_derivative(z);
    case layers::ActivationKind::kLeaky:
      return z > 0 ? 1 : 0.1;
    case layers::ActivationKind::kHardswish:
      return z < -3 ? 0 : z > 3 ? 1 : z / 3 + 0.5;
    case layers::ActivationKind::kMish: {
      const double t = std::tanh(std::log1p(std::exp(z)));
      return t + z * (1 - t * t) / (1 + std::exp(-z));
    }
  }
  return NAN;
}

// Computes the activation and its derivative at many values of z, with kernels
// whose normalisation is the identity.
template <typename T>
void expect_activation(InstructionSet set, layers::ActivationKind kind,
                       double tolerance) {
  const VectorKernels<T>& kernels = *vector_kernels_of<T>(set, kind);
  const int64_t period = kernels.block;
  constexpr int64_t kRows = 500;
  std::vector<T> z(kRows * period), out(z.size()), ones(period, 1),
      zeros(period, 0), dy(z.size(), 1), dx(z.size());
  for (size_t i = 0; i < z.size(); ++i)
    z[i] = T(-60 + 120.0 * i / (z.size() - 1));
  kernels.forward(z.data(), out.data(), kRows, period, zeros.data(),
                  ones.data(), zeros.data(), T(0.1));
  std::vector<double> sum(period), sum_centred(period);
  kernels.backward_activation(z.data(), dy.data(), dx.data(), kRows, period,
                              zeros.data(), ones.data(), zeros.data(), T(0.1),
                              sum.data(), sum_centred.data());
  for (size_t i = 0; i < z.size(); ++i) {
    const double expected = value_of(kind, z[i]);
    ASSERT_LE(std::abs(out[i] - expected), tolerance * std::abs(expected))
        << "activation(" << z[i] << ")";
    // The derivative crosses zero, so its error is absolute.
    ASSERT_NEAR(dx[i], derivative_of(kind, z[i]), 2 * tolerance)
        << "activation'(" << z[i] << ")";
  }
}

TEST_P(VectorKernelsTest, ActivationsAreAccurate) {
  for (const layers::ActivationKind kind :
       {layers::ActivationKind::kSilu, layers::ActivationKind::kLeaky,
        layers::ActivationKind::kHardswish, layers::ActivationKind::kMish}) {
    SCOPED_TRACE(static_cast<int>(kind));
    expect_activation<float>(GetParam(), kind, 6e-7);
    expect_activation<double>(GetParam(), kind, 3e-15);
  }
}

template <typename T>
void expect_extremes(InstructionSet set, layers::ActivationKind kind) {
  const VectorKernels<T>& kernels = *vector_kernels_of<T>(set, kind);
  const int64_t period = kernels.block;
  std::vector<T> z(period, 0), out(period), ones(period, 1), zeros(period, 0);
  const T large = T(sizeof(T) == 4 ? 3e38 : 1e308);
  z[0] = T(NAN);
  z[1] = T(INFINITY);
  z[2] = T(-INFINITY);
  z[3] = large;
  z[4] = -90;
  kernels.forward(z.data(), out.data(), 1, period, zeros.data(), ones.data(),
                  zeros.data(), T(0));
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_FALSE(std::isfinite(out[1]));
  EXPECT_FALSE(std::isfinite(out[2]));
  EXPECT_EQ(out[3], large);
  EXPECT_NEAR(out[4], 0, 1e-35);
  EXPECT_EQ(out[5], 0);
}

TEST_P(VectorKernelsTest, ExtremesStayInRangeAndNonFiniteStaysNonFinite) {
  for (const layers::ActivationKind kind :
       {layers::ActivationKind::kSilu, layers::ActivationKind::kHardswish,
        layers::ActivationKind::kMish}) {
    SCOPED_TRACE(static_cast<int>(kind));
    expect_extremes<float>(GetParam(), kind);
    expect_extremes<double>(GetParam(), kind);
  }
}

// Compares all four kernels, on random rows, with plain loops in double.
template <typename T>
void expect_all(InstructionSet set, double tolerance) {
  const VectorKernels<T>& kernels = *vector_kernels_of<T>(set);
  const int64_t period = 3 * kernels.block, rows = 77;
  std::mt19937 generator(5);
  std::normal_distribution<double> normal;
  const auto random = [&](int64_t size) {
    std::vector<T> values(size);
    for (T& value : values) value = T(normal(generator));
    return values;
  };
  const std::vector<T> y = random(rows * period), dy = random(rows * period),
                       mean = random(period), scale = random(period),
                       bias = random(period), offset = random(period),
                       slope = random(period);
  std::vector<T> dx, dz(y.size());
  std::vector<double> sum(period, 1), squares(period, 1), sum_dz(period, 1),
      sum_centred(period, 1);
  kernels.sums(y.data(), rows, period, mean.data(), sum.data(), squares.data());
  kernels.backward_activation(y.data(), dy.data(), dz.data(), rows, period,
                              mean.data(), scale.data(), bias.data(), T(0),
                              sum_dz.data(), sum_centred.data());
  dx = dz;
  kernels.backward_norm(y.data(), dx.data(), rows, period, mean.data(),
                        scale.data(), offset.data(), slope.data());
  for (int64_t c = 0; c < period; ++c) {
    double expected[4] = {1, 1, 1, 1};
    for (int64_t i = c; i < rows * period; i += period) {
      const double d = double(y[i]) - mean[c];
      const double gradient = dy[i] * silu_derivative(d * scale[c] + bias[c]);
      expected[0] += d;
      expected[1] += d * d;
      expected[2] += gradient;
      expected[3] += gradient * d;
      ASSERT_NEAR(dz[i], gradient, 10 * tolerance);
      ASSERT_NEAR(dx[i], scale[c] * gradient - offset[c] - d * slope[c],
                  10 * tolerance);
    }
    ASSERT_NEAR(sum[c], expected[0], 10 * rows * tolerance);
    ASSERT_NEAR(squares[c], expected[1], 10 * rows * tolerance);
    ASSERT_NEAR(sum_dz[c], expected[2], 10 * rows * tolerance);
    ASSERT_NEAR(sum_centred[c], expected[3], 10 * rows * tolerance);
  }
}

TEST_P(VectorKernelsTest, EqualPlainLoops) {
  expect_all<float>(GetParam(), 3e-7);
  expect_all<double>(GetParam(), 1e-15);
}

// Loads words of 16 bits, scales them in float and stores them again. A factor
// of 1 gives the result of loading and storing every word.
template <typename Element>
std::vector<uint16_t> scaled(InstructionSet set,
                             const std::vector<uint16_t>& words, float factor) {
  const VectorKernels<Element>& kernels = *vector_kernels_of<Element>(set);
  std::vector<uint16_t> result = words;
  const std::vector<uint16_t> y(words.size());
  const std::vector<float> zeros(kernels.block), scale(kernels.block, factor);
  kernels.backward_norm(y.data(), result.data(),
                        static_cast<int64_t>(words.size()) / kernels.block,
                        kernels.block, zeros.data(), scale.data(), zeros.data(),
                        zeros.data());
  return result;
}

template <typename Element, typename T>
void expect_rounding_of_libtorch(InstructionSet set) {
  std::vector<uint16_t> words(1 << 16);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint16_t>(i);
  for (const float factor :
       {1.0f, 1.2345678f, 1e-6f, 3.1e-8f, 7e4f, 1.0f / 3}) {
    const std::vector<uint16_t> result = scaled<Element>(set, words, factor);
    for (size_t i = 0; i < words.size(); ++i) {
      const float value =
          static_cast<float>(T(words[i], T::from_bits())) * factor;
      const T expected = value;
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(float(T(result[i], T::from_bits()))))
            << "word " << i;
      } else if (value != 0) {
        ASSERT_EQ(result[i], expected.x) << "word " << i << " times " << factor;
      } else {
        ASSERT_EQ(float(T(result[i], T::from_bits())), 0) << "word " << i;
      }
    }
  }
}

TEST_P(VectorKernelsTest, WordsOf16BitsAreRoundedAsByLibTorch) {
  expect_rounding_of_libtorch<BFloat16Element, c10::BFloat16>(GetParam());
  expect_rounding_of_libtorch<Float16Element, c10::Half>(GetParam());
}

// The kernels for words of 16 bits give the float kernels' values, rounded.
template <typename Element, typename T>
void expect_float_rounded(InstructionSet set) {
  const VectorKernels<Element>& kernels = *vector_kernels_of<Element>(set);
  const VectorKernels<float>& floats = *vector_kernels_of<float>(set);
  const int64_t period = 2 * kernels.block, rows = 41;
  std::mt19937 generator(6);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> y(rows * period), dy(y.size()), out(y.size()),
      dz(y.size());
  std::vector<float> y_float(y.size()), dy_float(y.size()), out_float(y.size()),
      dz_float(y.size());
  for (size_t i = 0; i < y.size(); ++i) {
    const T a = normal(generator), b = normal(generator);
    y[i] = a.x, y_float[i] = a;
    dy[i] = b.x, dy_float[i] = b;
  }
  std::vector<float> mean(period), scale(period), bias(period);
  for (std::vector<float>* values : {&mean, &scale, &bias})
    for (float& value : *values) value = normal(generator);
  std::vector<double> sums(4 * period), expected(4 * period);
  kernels.sums(y.data(), rows, period, mean.data(), sums.data(),
               sums.data() + period);
  floats.sums(y_float.data(), rows, period, mean.data(), expected.data(),
              expected.data() + period);
  kernels.forward(y.data(), out.data(), rows, period, mean.data(), scale.data(),
                  bias.data(), 0);
  floats.forward(y_float.data(), out_float.data(), rows, period, mean.data(),
                 scale.data(), bias.data(), 0);
  kernels.backward_activation(
      y.data(), dy.data(), dz.data(), rows, period, mean.data(), scale.data(),
      bias.data(), 0, sums.data() + 2 * period, sums.data() + 3 * period);
  floats.backward_activation(y_float.data(), dy_float.data(), dz_float.data(),
                             rows, period, mean.data(), scale.data(),
                             bias.data(), 0, expected.data() + 2 * period,
                             expected.data() + 3 * period);
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_EQ(out[i], T(out_float[i]).x) << i;
    ASSERT_EQ(dz[i], T(dz_float[i]).x) << i;
  }
  EXPECT_EQ(sums, expected);
}

TEST_P(VectorKernelsTest, WordsOf16BitsAreComputedWithInFloat) {
  expect_float_rounded<BFloat16Element, c10::BFloat16>(GetParam());
  expect_float_rounded<Float16Element, c10::Half>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, VectorKernelsTest,
                         testing::Values(InstructionSet::kBaseline,
                                         InstructionSet::kAvx2,
                                         InstructionSet::kAvx512));

}  // namespace
}  // namespace headroom::kernels
