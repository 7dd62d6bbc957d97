#include "deploy/cli/process/dataset_query.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

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

TEST(DatasetQuery, AnAutomaticOptimizerFollowsFromTheNumberOfImages) {
  const headroom::testing::TemporaryFolder folder;
  folder.write("images/a.txt", "");
  folder.write("d.yaml", "train: images\nval: images\nnames: [a, b, c]\n");
  configs::RunConfig config = training();
  config.data = folder.path() / "d.yaml";
  std::vector<std::string> notes;
  EXPECT_FALSE(counts_for_optimizer(config));
  take_optimizer(config, notes);
  EXPECT_TRUE(notes.empty());
  config.optimizer = configs::OptimizerKind::kAuto;
  EXPECT_TRUE(counts_for_optimizer(config));
  take_optimizer(config, notes);  // the images are not counted yet
  EXPECT_EQ(config.optimizer, configs::OptimizerKind::kAuto);
  config.label_counts = "0x5 3x200";
  EXPECT_FALSE(counts_for_optimizer(config));
  take_optimizer(config, notes);
  EXPECT_EQ(config.optimizer, configs::OptimizerKind::kAdamW);
  EXPECT_DOUBLE_EQ(config.hyp.lr0, 0.001429);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes[0].starts_with("optimizer: AdamW, lr0 0.001429, "))
      << notes[0];
}

}  // namespace
}  // namespace headroom::cli
