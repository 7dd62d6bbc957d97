#include "coordinator/run/rendezvous_keys.h"

#include <gtest/gtest.h>

namespace headroom::coordinator {
namespace {

TEST(RendezvousKeys, KeepsTheNewestValueUntilCleared) {
  RendezvousKeys keys;
  EXPECT_EQ(keys.find("a"), nullptr);
  EXPECT_EQ(keys.publish("w0", "a", "1"), std::nullopt);
  EXPECT_EQ(keys.publish("w0", "a", std::string("\0x", 2)), std::nullopt);
  EXPECT_EQ(*keys.find("a"), std::string("\0x", 2));
  keys.clear();
  EXPECT_EQ(keys.find("a"), nullptr);
}

TEST(RendezvousKeys, AKeyHasALength) {
  RendezvousKeys keys;
  EXPECT_EQ(keys.publish("w0", "", "1"),
            "a rendezvous key has 1 to 4096 characters, this one 0");
  EXPECT_EQ(keys.publish("w0", std::string(4097, 'k'), "1"),
            "a rendezvous key has 1 to 4096 characters, this one 4097");
}

TEST(RendezvousKeys, TheBytesOfAGenerationAreBounded) {
  RendezvousKeys keys;
  const std::string value(RendezvousKeys::kMaxBytesOfMember - 1, 'v');
  for (const char* member : {"a", "b", "c", "d"}) {
    EXPECT_EQ(keys.publish(member, member, value), std::nullopt);
    // When a value is replaced, the bytes of the old value are freed.
    EXPECT_EQ(keys.publish(member, member, value), std::nullopt);
  }
  EXPECT_EQ(keys.publish("e", "e", "v"),
            "the rendezvous keys of this generation would take 67108866 "
            "bytes, more than 67108864");
  EXPECT_EQ(keys.find("e"), nullptr);
  keys.clear();
  EXPECT_EQ(keys.publish("e", "e", "v"), std::nullopt);
}

TEST(RendezvousKeys, AMemberLeavesRoomForTheOthers) {
  RendezvousKeys keys;
  for (size_t i = 0; i < RendezvousKeys::kMaxKeysOfMember; ++i) {
    ASSERT_EQ(keys.publish("w0", std::to_string(i), ""), std::nullopt);
  }
  EXPECT_EQ(keys.publish("w0", "more", ""),
            "worker w0 would have 4097 rendezvous keys, more than 4096");
  EXPECT_EQ(keys.publish("w1", "more", ""), std::nullopt);
  EXPECT_EQ(keys.publish("w1", "0", "taken over"), std::nullopt);
  EXPECT_EQ(keys.publish("w0", "again", ""), std::nullopt);
  for (size_t i = 0; i <= RendezvousKeys::kMaxKeysOfMember; ++i) {
    ASSERT_EQ(keys.publish("", "log/" + std::to_string(i), ""), std::nullopt);
  }
  keys.clear();
  const std::string half(RendezvousKeys::kMaxBytesOfMember / 2, 'v');
  EXPECT_EQ(keys.publish("w0", "a", half), std::nullopt);
  EXPECT_EQ(keys.publish("w0", "b", half),
            "the rendezvous keys of worker w0 would take 16777218 bytes, more "
            "than 16777216");
}

}  // namespace
}  // namespace headroom::coordinator
