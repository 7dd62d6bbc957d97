#include "worker/validation/validation_figures.h"

#include <gtest/gtest.h>

#include <string>

#include "configs/options.h"
#include "parallel/base/check.h"

namespace headroom::validation {
namespace {

TEST(ValidationFigures, EachNameOfBestMetricIsAMetric) {
  ValidationResult result;
  result.precision = 0.5;
  result.recall = 0.6;
  result.map50 = 0.4;
  result.map = 0.2;
  EXPECT_DOUBLE_EQ(result.metric("fitness"), 0.1 * 0.4 + 0.9 * 0.2);
  EXPECT_EQ(result.metric("mAP50"), 0.4);
  EXPECT_EQ(result.metric("mAP"), 0.2);
  EXPECT_EQ(result.metric("recall"), 0.6);
  EXPECT_EQ(result.metric("precision"), 0.5);
  for (const std::string& name : configs::find_key("best_metric")->choices) {
    EXPECT_NO_THROW(result.metric(name)) << name;
  }
  EXPECT_THROW(result.metric("loss"), CheckFailure);
}

}  // namespace
}  // namespace headroom::validation
