#include "configs/yaml/scalar.h"

#include <gtest/gtest.h>

#include <vector>

namespace headroom::yaml {
namespace {

const std::vector<std::string> kNames = {"epochs", "cos_lr", "data", "name"};

TEST(NearestName, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("abc", "abc"), 0);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  // A swap of neighbours is one edit.
  EXPECT_EQ(edit_distance("epcohs", "epochs"), 1);
  EXPECT_EQ(edit_distance("ca", "abc"), 3);
}

TEST(NearestName, FindsTheIntendedName) {
  EXPECT_EQ(nearest_name("epoch", kNames), "epochs");
  EXPECT_EQ(nearest_name("coslr", kNames), "cos_lr");
  EXPECT_EQ(nearest_name("dtaa", kNames), "data");
}

TEST(NearestName, SuggestsNothingWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("wavelength", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 'e'), kNames), "");
  EXPECT_EQ(suggestion("wavelength", kNames, "look it up"), "look it up");
  EXPECT_EQ(suggestion("epoch", kNames, "look it up"),
            "did you mean 'epochs'?");
}

}  // namespace
}  // namespace headroom::yaml
