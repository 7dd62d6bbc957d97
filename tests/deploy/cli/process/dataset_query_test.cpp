#include "deploy/cli/process/dataset_query.h"

#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

configs::RunConfig training() {
  configs::RunConfig config;
  config.data = "d.yaml";
  config.cfg = "yolov5n";
  return config;
}

template <typename Change>
bool wants(const Change& change) {
  configs::RunConfig config = training();
  change(config);
  return wants_anchors(config);
}

TEST(DatasetQuery, AnchorsAreComputedForNewRunsOnData) {
  EXPECT_TRUE(wants([](configs::RunConfig&) {}));
  EXPECT_FALSE(wants([](configs::RunConfig& c) { c.noautoanchor = true; }));
  EXPECT_FALSE(wants([](configs::RunConfig& c) { c.command = "val"; }));
  EXPECT_FALSE(
      wants([](configs::RunConfig& c) { c.resume = "runs/train/exp"; }));
  EXPECT_FALSE(wants([](configs::RunConfig& c) { c.synthetic_input = true; }));
  EXPECT_FALSE(wants([](configs::RunConfig& c) { c.data = ""; }));
  EXPECT_FALSE(
      wants([](configs::RunConfig& c) { c.anchors = "1,2; 3,4; 5,6"; }));
  EXPECT_FALSE(wants([](configs::RunConfig& c) { c.anchors_reason = "kept"; }));
}

TEST(DatasetQuery, WeightsWithoutAModelBringTheirs) {
  EXPECT_TRUE(wants([](configs::RunConfig& c) {
    c.noautoanchor = true;
    c.cfg = "";
    c.weights = "w.safetensors";
  }));
  EXPECT_FALSE(wants([](configs::RunConfig& c) {
    c.noautoanchor = true;
    c.weights = "w.safetensors";
  }));
}

TEST(DatasetQuery, TheAnchorsOfARunAreNotUsedByOtherRuns) {
  configs::RunConfig config = training();
  config.anchors = "1,2; 3,4; 5,6";
  forget_found_anchors(config);
  EXPECT_EQ(config.anchors, "1,2; 3,4; 5,6");  // these anchors were set by hand
  config.anchors_reason = "the model's anchors match ...";
  forget_found_anchors(config);
  EXPECT_EQ(config, training());
}

}  // namespace
}  // namespace headroom::cli
