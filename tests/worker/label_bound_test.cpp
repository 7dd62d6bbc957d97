#include "worker/label_bound.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(LabelBound, FollowsTheAugmentation) {
  RunConfig config;
  config.hyp.mosaic = 1;
  config.hyp.mixup = 0;
  EXPECT_EQ(most_boxes_of_a_sample(config, 30), 120);
  config.hyp.mixup = 0.1;
  EXPECT_EQ(most_boxes_of_a_sample(config, 30), 240);
  config.hyp.mosaic = 0;  // mixup mixes mosaics only
  EXPECT_EQ(most_boxes_of_a_sample(config, 30), 30);
  config.hyp.mosaic = 1;
  config.rect = true;
  EXPECT_EQ(most_boxes_of_a_sample(config, 30), 30);
}

}  // namespace
}  // namespace headroom
