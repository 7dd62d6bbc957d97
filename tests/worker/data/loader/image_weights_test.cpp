#include "worker/data/loader/image_weights.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/refusal.h"

namespace headroom::loader {
namespace {

TEST(ImageWeights, OfAClassAreItsInverseShareTimesWhatItsMapLacksSquared) {
  // The inverse counts are 1/2 and 1/8, and 1 for a class without labels. Their
  // sum is 13/8.
  const std::vector<double> before = class_weights({2, 8, 0}, {});
  EXPECT_DOUBLE_EQ(before[0], 4.0 / 13);
  EXPECT_DOUBLE_EQ(before[1], 1.0 / 13);
  EXPECT_DOUBLE_EQ(before[2], 8.0 / 13);
  const std::vector<double> after = class_weights({2, 8, 0}, {0.5, 0, 1});
  EXPECT_DOUBLE_EQ(after[0], 1.0 / 13);
  EXPECT_DOUBLE_EQ(after[1], 1.0 / 13);
  EXPECT_DOUBLE_EQ(after[2], 0);
}

TEST(ImageWeights, OfAnImageAreTheSumOverItsLabels) {
  const TemporaryFolder folder;
  const labels::Dataset dataset = indexed_data_set(folder, 23);
  std::vector<int64_t> labels(3, 0);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    for (const labels::BoxLabel& label : dataset.labels(i))
      ++labels[label.class_index];
  }
  const std::vector<double> maps = {0.2, 0.9, 0.4};
  for (const std::vector<double>& known : {std::vector<double>(), maps}) {
    const std::vector<double> of_class = class_weights(labels, known);
    const std::vector<double> weights = image_weights(dataset, known);
    ASSERT_EQ(weights.size(), 23u);
    int64_t without = 0;
    for (int64_t i = 0; i < dataset.size(); ++i) {
      double expected = 0;
      for (const labels::BoxLabel& label : dataset.labels(i)) {
        expected += of_class[label.class_index];
      }
      EXPECT_EQ(weights[i], expected) << i;
      without += dataset.labels(i).empty() ? 1 : 0;
    }
    EXPECT_EQ(images_without_labels(dataset), without);
    EXPECT_GT(without, 0);
  }
  EXPECT_NE(digest_of(image_weights(dataset, {})),
            digest_of(image_weights(dataset, maps)));
}

TEST(ImageWeights, WithNothingLeftToLearnNothingIsDrawn) {
  const TemporaryFolder folder;
  const labels::Dataset dataset = indexed_data_set(folder, 5);
  EXPECT_EQ(refusal_of([&] {
              image_weights(dataset, {1, 1, 1});
            }),
            "[data] --image-weights has no image left to draw: every class "
            "with labels has reached mAP 1: train on without it: --weights of "
            "this run in a new one");
}

}  // namespace
}  // namespace headroom::loader
