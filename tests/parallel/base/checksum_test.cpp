#include "parallel/base/checksum.h"

#include <gtest/gtest.h>

#include <string>

namespace headroom {
namespace {

TEST(Checksum, Crc32cMatchesRfc3720) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c("6789", crc32c("12345")), 0xe3069283u);
}

TEST(Checksum, Crc32MatchesZips) { EXPECT_EQ(crc32("123456789"), 0xcbf43926u); }

}  // namespace
}  // namespace headroom
