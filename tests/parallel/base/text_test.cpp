#include "parallel/base/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace headroom {
namespace {

TEST(FixedText, HasSoManyDecimals) {
  EXPECT_EQ(fixed_text(0.5, 3), "0.500");
  EXPECT_EQ(fixed_text(-1.25, 1), "-1.2");  // rounded to the even neighbour
  EXPECT_EQ(fixed_text(2.0 / 3, 0), "1");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::max(), 6).size(), 316u);
}

TEST(SignificantText, HasSoManyDigitsAndNoZerosAtTheEnd) {
  EXPECT_EQ(significant_text(0.25, 4), "0.25");
  EXPECT_EQ(significant_text(1'234'567, 3), "1.23e+06");
  EXPECT_EQ(significant_text(1'872.4, 4), "1872");
}

TEST(ParseWhole, TakesDigitsAndAMinusAndNothingElse) {
  EXPECT_EQ(parse_whole("0"), 0);
  EXPECT_EQ(parse_whole("-17"), -17);
  EXPECT_EQ(parse_whole("007"), 7);
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1.0", "1e3", "0x1",
                           "9223372036854775808"}) {
    EXPECT_EQ(parse_whole(text), std::nullopt) << text;
  }
}

TEST(ParseWhole, RefusesNumbersOutsideTheBounds) {
  EXPECT_EQ(parse_whole("1", 1, 3), 1);
  EXPECT_EQ(parse_whole("3", 1, 3), 3);
  EXPECT_EQ(parse_whole("0", 1, 3), std::nullopt);
  EXPECT_EQ(parse_whole("4", 1, 3), std::nullopt);
  EXPECT_EQ(parse_whole("-1", 0), std::nullopt);
}

TEST(Joined, HasTheTextBetweenItems) {
  EXPECT_EQ(joined(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(joined(std::vector<std::string>{"a"}, ", "), "a");
  EXPECT_EQ(joined(std::vector<std::string>{"", "b"}, ", "), ", b");
  const auto text_of = [](int64_t number) { return std::to_string(number); };
  EXPECT_EQ(joined(std::vector<int64_t>{1, 2}, " x ", text_of), "1 x 2");
}

TEST(UrlEncoded, EveryOtherByteIsEscaped) {
  EXPECT_EQ(url_encoded("a b/\xc3\xa4&.jpg"), "a%20b%2F%C3%A4%26.jpg");
}

TEST(EitherOf, HasAnOrBeforeTheLast) {
  EXPECT_EQ(either_of({}), "");
  EXPECT_EQ(either_of({"a"}), "a");
  EXPECT_EQ(either_of({"a", "b"}), "a or b");
  EXPECT_EQ(either_of({"a", "b", "c"}), "a, b or c");
}

TEST(FirstOf, CountsTheOmittedItems) {
  const auto text_of = [](int64_t number) { return std::to_string(number); };
  EXPECT_EQ(first_of(std::vector<int64_t>{1, 2}, 2, text_of), "1, 2");
  EXPECT_EQ(first_of(std::vector<int64_t>{1, 2, 3, 4}, 2, text_of),
            "1, 2 and 2 more");
}

}  // namespace
}  // namespace headroom
