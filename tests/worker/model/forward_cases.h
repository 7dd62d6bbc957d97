// What the tests of forward passes share.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "worker/model/step_context.h"

namespace headroom::model {

inline StepContext training_context(int64_t images, const at::Tensor& sums) {
  StepContext context;
  context.training = true;
  context.groups = {{0, images, images, true}};
  context.batch_norm_sums = sums;
  return context;
}

// A stored summary consists of exact sums and the first values of a float64
// run.
inline void expect_summary(const at::Tensor& tensor,
                           const nlohmann::json& expected, double tolerance) {
  const at::Tensor values = tensor.detach().to(at::kDouble).contiguous();
  EXPECT_EQ(values.sizes().vec(),
            expected.at("shape").get<std::vector<int64_t>>());
  const double l2 = std::sqrt(expected.at("sq_sum").get<double>());
  const double abs_sum = expected.at("abs_sum").get<double>();
  EXPECT_NEAR(values.norm().item<double>(), l2, tolerance * l2);
  EXPECT_NEAR(values.abs().sum().item<double>(), abs_sum, tolerance * abs_sum);
  EXPECT_NEAR(values.sum().item<double>(), expected.at("sum").get<double>(),
              tolerance * abs_sum);
  const auto first = expected.at("first").get<std::vector<double>>();
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double value = values.data_ptr<double>()[i];
    difference += (value - first[i]) * (value - first[i]);
    norm += first[i] * first[i];
  }
  // The first values alone may deviate more than the whole output does.
  EXPECT_LE(std::sqrt(difference), 3 * tolerance * std::sqrt(norm));
}

}  // namespace headroom::model
