#include "coordinator/run/rendezvous_keys.h"

#include <gtest/gtest.h>

namespace headroom::coordinator {
namespace {

TEST(RendezvousKeys, KeepsTheNewestValueUntilCleared) {
  RendezvousKeys keys;
  EXPECT_EQ(keys.find("a"), nullptr);
  EXPECT_EQ(keys.publish("a", "1"), std::nullopt);
  EXPECT_EQ(keys.publish("a", std::string("\0x", 2)), std::nullopt);
  EXPECT_EQ(*keys.find("a"), std::string("\0x", 2));
  keys.clear();
  EXPECT_EQ(keys.find("a"), nullptr);
}

TEST(RendezvousKeys, AKeyHasALength) {
  RendezvousKeys keys;
  EXPECT_EQ(keys.publish("", "1"),
            "a rendezvous key has 1 to 4096 characters, this one 0");
  EXPECT_EQ(keys.publish(std::string(4097, 'k'), "1"),
            "a rendezvous key has 1 to 4096 characters, this one 4097");
}

TEST(RendezvousKeys, TheBytesOfAGenerationAreBounded) {
  RendezvousKeys keys;
  const std::string half(RendezvousKeys::kMaxBytes / 2, 'v');
  EXPECT_EQ(keys.publish("a", half), std::nullopt);
  // Replacing frees what was there.
  EXPECT_EQ(keys.publish("a", half), std::nullopt);
  EXPECT_EQ(keys.publish("b", half),
            "the rendezvous keys of this generation would take 67108866 "
            "bytes, more than 67108864");
  EXPECT_EQ(keys.find("b"), nullptr);
  keys.clear();
  EXPECT_EQ(keys.publish("b", half), std::nullopt);
}

}  // namespace
}  // namespace headroom::coordinator
