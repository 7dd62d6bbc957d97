#include "worker/optim/optimizer.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "parallel/base/check.h"
#include "tests/support/parity.h"

namespace headroom::optim {
namespace {

TEST(EmaTest, MovesByOneMinusDecay) {
  for (const auto type : {at::kFloat, at::kDouble})
    for (const int64_t updates : {1, 2000, 100000}) {
      at::Tensor average = at::linspace(-1, 1, 1001, type);
      const at::Tensor value = at::linspace(3, -5, 1001, type);
      const double d = 0.9999 * (1 - std::exp(-updates / 2000.0));
      const at::Tensor expected = average.mul(d).add(value, 1 - d);
      ema_update(average, value, updates);
      const double tolerance = type == at::kDouble ? 1e-14 : 1e-6;
      EXPECT_TRUE(at::allclose(average, expected, tolerance, tolerance))
          << updates;
    }
}

TEST(EmaTest, MismatchesAreRefused) {
  at::Tensor average = at::linspace(-1, 1, 10, at::kFloat);
  EXPECT_THROW(ema_update(average, average.to(at::kDouble), 1), CheckFailure);
  EXPECT_THROW(ema_update(average, at::zeros_like(average), 0), CheckFailure);
}

TEST(EmaParityTest, Decay) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json decays = load_parity_json("schedules.json")["ema_decay"];
  EXPECT_GT(decays.size(), 10u);
  for (const auto& [updates, expected] : decays.items())
    EXPECT_NEAR(ema_decay(std::stoll(updates)), expected.get<double>(), 1e-15)
        << updates;
}

}  // namespace
}  // namespace headroom::optim
