#include "parallel/base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(Units, FormatsBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1), "1 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(int64_t{20} * 1024 * 1024), "20 MiB");
  EXPECT_EQ(format_bytes(int64_t{1288490189}), "1.2 GiB");
  EXPECT_EQ(format_bytes(int64_t{5} << 50), "5120 TiB");
  EXPECT_EQ(format_bytes(-1536), "-1.5 KiB");
}

TEST(Units, ExactBytesHaveTheirDigitsToo) {
  EXPECT_EQ(exact_bytes(1536), "1.5 KiB (1536 bytes)");
  EXPECT_EQ(exact_bytes(0), "0 B (0 bytes)");
}

TEST(Units, ParsesBytes) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("800000000"), 800'000'000);
  EXPECT_EQ(parse_bytes("2GiB"), int64_t{2} << 30);
  EXPECT_EQ(parse_bytes("2 gib"), int64_t{2} << 30);
  EXPECT_EQ(parse_bytes("512 MiB"), 512 << 20);
  EXPECT_EQ(parse_bytes("1.5G"), int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("1.5GB"), int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("3k"), 3072);
  EXPECT_EQ(parse_bytes("7B"), 7);
  EXPECT_EQ(parse_bytes("1T"), int64_t{1} << 40);
}

TEST(Units, RefusesTextThatIsNoSize) {
  for (const char* text : {"", "GiB", "-1", "-1GiB", "1XiB", "1GiBi", "nan",
                           "1e30", "99999999999T", "2 potatoes"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(Units, FormattedSizesParseBackApproximately) {
  for (int64_t bytes = 1; bytes < (int64_t{1} << 50); bytes = bytes * 3 + 1) {
    const auto back = parse_bytes(format_bytes(bytes));
    ASSERT_TRUE(back.has_value()) << format_bytes(bytes);
    EXPECT_NEAR(static_cast<double>(*back), static_cast<double>(bytes),
                0.006 * static_cast<double>(bytes));
  }
}

TEST(Units, FormatsSeconds) {
  EXPECT_EQ(format_seconds(0.0000123), "12.3us");
  EXPECT_EQ(format_seconds(0.0123), "12.3ms");
  EXPECT_EQ(format_seconds(1.5), "1.5s");
  EXPECT_EQ(format_seconds(75.2), "1m15s");
  EXPECT_EQ(format_seconds(600), "10m00s");
  EXPECT_EQ(format_seconds(3600), "1h00m");
  EXPECT_EQ(format_seconds(93'784), "26h03m");
}

TEST(UtcNow, LooksLikeATime) {
  EXPECT_THAT(utc_now(),
              ::testing::MatchesRegex("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T"
                                      "[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\\."
                                      "[0-9][0-9][0-9]Z"));
}

TEST(UtcMilliseconds, AreThoseOfTheText) {
  EXPECT_EQ(utc_milliseconds("1970-01-02T00:00:01.250Z"), 86'401'250);
  EXPECT_EQ(utc_milliseconds("yesterday"), std::nullopt);
  EXPECT_EQ(utc_milliseconds("1970-01-02T00:00:01"), std::nullopt);
}

TEST(Counted, OneIsOneAndNounsHaveTheirPlural) {
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(2, "epoch"), "2 epochs");
  EXPECT_EQ(counted(2, "batch"), "2 batches");
  EXPECT_EQ(counted(3, "box"), "3 boxes");
  EXPECT_EQ(counted(2, "process"), "2 processes");
  EXPECT_EQ(counted(1, "class"), "1 class");
}

TEST(DividedUp, CountsThePartsThatHoldAll) {
  EXPECT_EQ(divided_up(0, 32), 0);
  EXPECT_EQ(divided_up(1, 32), 1);
  EXPECT_EQ(divided_up(32, 32), 1);
  EXPECT_EQ(divided_up(33, 32), 2);
}

TEST(RoundUp, ToTheNextMultiple) {
  EXPECT_EQ(round_up(0, 32), 0);
  EXPECT_EQ(round_up(1, 32), 32);
  EXPECT_EQ(round_up(32, 32), 32);
  EXPECT_EQ(round_up(33, 32), 64);
}

}  // namespace
}  // namespace headroom
