#include "worker/model/kernels/vector_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace headroom {
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

// Every value of z through a kernel whose normalisation is the identity.
template <typename T>
void expect_silu(InstructionSet set, double tolerance) {
  const VectorKernels<T>& kernels = *vector_kernels_of<T>(set);
  const int64_t period = kernels.block;
  constexpr int64_t kRows = 500;
  std::vector<T> z(kRows * period), out(z.size()), ones(period, 1),
      zeros(period, 0), dy(z.size(), 1), dx(z.size());
  for (size_t i = 0; i < z.size(); ++i)
    z[i] = T(-60 + 120.0 * i / (z.size() - 1));
  kernels.forward(z.data(), out.data(), kRows, period, zeros.data(),
                  ones.data(), zeros.data());
  std::vector<double> sum(period), sum_centred(period);
  kernels.backward_activation(z.data(), dy.data(), dx.data(), kRows, period,
                              zeros.data(), ones.data(), zeros.data(),
                              sum.data(), sum_centred.data());
  for (size_t i = 0; i < z.size(); ++i) {
    const double expected = silu(z[i]);
    ASSERT_LE(std::abs(out[i] - expected), tolerance * std::abs(expected))
        << "silu(" << z[i] << ")";
    // The derivative crosses zero, so its error is absolute.
    ASSERT_NEAR(dx[i], silu_derivative(z[i]), 2 * tolerance)
        << "silu'(" << z[i] << ")";
  }
}

TEST_P(VectorKernelsTest, SiluIsAccurate) {
  expect_silu<float>(GetParam(), 3e-7);
  expect_silu<double>(GetParam(), 2e-15);
}

template <typename T>
void expect_extremes(InstructionSet set) {
  const VectorKernels<T>& kernels = *vector_kernels_of<T>(set);
  const int64_t period = kernels.block;
  std::vector<T> z(period, 0), out(period), ones(period, 1), zeros(period, 0);
  const T large = T(sizeof(T) == 4 ? 3e38 : 1e308);
  z[0] = T(NAN);
  z[1] = T(INFINITY);
  z[2] = T(-INFINITY);
  z[3] = large;
  z[4] = -90;
  kernels.forward(z.data(), out.data(), 1, period, zeros.data(), ones.data(),
                  zeros.data());
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_FALSE(std::isfinite(out[1]));
  EXPECT_FALSE(std::isfinite(out[2]));
  EXPECT_EQ(out[3], large);
  EXPECT_NEAR(out[4], 0, 1e-35);
  EXPECT_EQ(out[5], 0);
}

TEST_P(VectorKernelsTest, ExtremesStayInRangeAndNonFiniteStaysNonFinite) {
  expect_extremes<float>(GetParam());
  expect_extremes<double>(GetParam());
}

// All four kernels on random rows, against plain loops in double.
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
                              mean.data(), scale.data(), bias.data(),
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

INSTANTIATE_TEST_SUITE_P(InstructionSets, VectorKernelsTest,
                         testing::Values(InstructionSet::kBaseline,
                                         InstructionSet::kAvx2,
                                         InstructionSet::kAvx512));

}  // namespace
}  // namespace headroom
