#include "parallel/base/device_list.h"

#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom {
namespace {

using Cards = std::vector<int>;

TEST(DeviceList, IsReadAsYolov5Writes) {
  EXPECT_EQ(parse_device_list(""), Cards{});
  EXPECT_EQ(parse_device_list("cpu"), Cards{});
  EXPECT_EQ(parse_device_list("0"), Cards{0});
  EXPECT_EQ(parse_device_list("cuda"), Cards{0});
  EXPECT_EQ(parse_device_list("cuda:1"), Cards{1});
  EXPECT_EQ(parse_device_list("2,0,1"), (Cards{2, 0, 1}));
}

TEST(DeviceList, AutoAndAllNameNoCardByNumber) {
  for (const char* device : {"", "auto", "cpu", "all"}) {
    EXPECT_EQ(parse_device_list(device), Cards{}) << device;
  }
  EXPECT_TRUE(is_automatic_device(""));
  EXPECT_TRUE(is_automatic_device("auto"));
  EXPECT_FALSE(is_automatic_device("cpu"));
  EXPECT_FALSE(is_automatic_device("all"));
  EXPECT_TRUE(computes_on_cards("all"));
  EXPECT_TRUE(computes_on_cards("0,1"));
  EXPECT_FALSE(computes_on_cards("auto")) << "it is not settled";
  EXPECT_FALSE(computes_on_cards("cpu"));
}

TEST(DeviceList, OtherTextIsRefused) {
  for (const char* text :
       {"gpu", "0,", ",0", "cuda:x", "-1", "0 1", "0,0", "99999999999"}) {
    EXPECT_THROW(parse_device_list(text), Error) << text;
  }
}

TEST(DeviceList, EachProcessHasACardUnlessItMayShare) {
  EXPECT_EQ(card_of_rank({4, 2}, 0, 2, false), 4);
  EXPECT_EQ(card_of_rank({4, 2}, 1, 2, false), 2);
  EXPECT_THROW(card_of_rank({4, 2}, 0, 3, false), Error);
  EXPECT_EQ(card_of_rank({4, 2}, 2, 3, true), 4);
  // One worker of the machine is lost, but the other one keeps its card.
  EXPECT_EQ(card_of_rank({4, 2}, 1, 1, false), 2);
}

TEST(DeviceList, ACapabilityHasAPoint) {
  EXPECT_EQ(capability_text(86), "8.6");
  EXPECT_EQ(capability_text(120), "12.0");
}

}  // namespace
}  // namespace headroom
