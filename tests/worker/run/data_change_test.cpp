#include "worker/run/starting_state.h"

#include <gtest/gtest.h>

namespace headroom::run {
namespace {

TEST(DataChange, ADataSetThatDiffersFromTheRunsIsDescribed) {
  const step::TrainingData before = {37, 5};
  EXPECT_EQ(data_change(before, {37, 5}, 12, 5), "");
  EXPECT_EQ(data_change({}, {37, 5}, 12, 5), "") << "an older checkpoint";
  EXPECT_EQ(data_change(before, {37, 6}, 12, 5),
            "the 37 training images of this start or their labels are not "
            "those that the run had");
  EXPECT_EQ(data_change(before, {20, 6}, 12, 3),
            "the run had 37 training images and goes on with 20: an epoch is "
            "3 steps now, and after 12 this is epoch 5");
}

}  // namespace
}  // namespace headroom::run
