#include "worker/optim/optimizer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "parallel/base/check.h"

namespace headroom::optim {
namespace {

TEST(GradNormTest, SumOfTwoInDouble) {
  for (const auto type : {at::kFloat, at::kDouble})
    for (const int64_t size : {0, 5, 100003}) {
      const at::Tensor a = at::linspace(-1, 2, size, type);
      const at::Tensor b = at::linspace(0.25, -3, size, type);
      const double alone = a.to(at::kDouble).square().sum().item<double>();
      const double both =
          a.add(b).to(at::kDouble).square().sum().item<double>();
      EXPECT_NEAR(squared_norm_of_sum(a, {}), alone, 1e-12 * alone);
      EXPECT_NEAR(squared_norm_of_sum(a, b), both, 1e-12 * both);
    }
}

TEST(GradNormTest, ThreadsChangeNothing) {
  const int threads = at::get_num_threads();
  const at::Tensor a = at::linspace(-1, 2, 300001, at::kFloat).sin_();
  at::set_num_threads(1);
  const double one = squared_norm_of_sum(a, a);
  at::set_num_threads(2);
  const double two = squared_norm_of_sum(a, a);
  at::set_num_threads(threads);
  EXPECT_EQ(one, two);
}

TEST(GradNormTest, LargeFloatsDoNotOverflow) {
  const at::Tensor a = at::full({4}, 1e30, at::kFloat);
  EXPECT_NEAR(squared_norm_of_sum(a, {}), 4e60, 1e54);
}

TEST(GradNormTest, NonFiniteShows) {
  at::Tensor a = at::zeros({100000}, at::kFloat);
  a[77777].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(squared_norm_of_sum(a, {})));
  a[77777].fill_(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isinf(squared_norm_of_sum(a, {})));
}

TEST(GradNormTest, AddInPlace) {
  at::Tensor a = at::full({3}, 1.5, at::kFloat);
  add_in_place(a, at::full({3}, 0.25, at::kFloat));
  EXPECT_TRUE(at::equal(a, at::full({3}, 1.75, at::kFloat)));
  EXPECT_THROW(add_in_place(a, at::zeros({4}, at::kFloat)), CheckFailure);
}

TEST(GradNormTest, ClipCoefficient) {
  EXPECT_EQ(clip_coefficient(0), 1);
  EXPECT_EQ(clip_coefficient(9.999), 1);
  EXPECT_DOUBLE_EQ(clip_coefficient(20), 10 / (20 + 1e-6));
  EXPECT_DOUBLE_EQ(clip_coefficient(3, 1.5), 1.5 / (3 + 1e-6));
}

}  // namespace
}  // namespace headroom::optim
