#include "configs/yaml/line_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headroom {
namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  LineReader reader(text);
  while (reader.next()) {
    lines.emplace_back(reader.line());
    EXPECT_EQ(reader.number(), static_cast<int64_t>(lines.size()));
  }
  return lines;
}

TEST(LineReader, ReadsEveryLineEnd) {
  const std::vector<std::string> two = {"a", "b c"};
  for (const char* text : {"a\nb c", "a\nb c\n", "a\r\nb c\r\n", "a\rb c\r",
                           "\xEF\xBB\xBF"
                           "a\r\nb\xC2\xA0"
                           "c\n\x1A",
                           "a\nb c\r\n\x1A\r\n"}) {
    EXPECT_EQ(lines_of(text), two) << text;
  }
  EXPECT_EQ(lines_of("a\n\nb"), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_TRUE(lines_of("").empty());
  EXPECT_TRUE(lines_of("\x1A").empty());
  EXPECT_TRUE(lines_of("\xEF\xBB\xBF").empty());
}

TEST(LineReader, KeepsOtherBytes) {
  EXPECT_EQ(plain_text("\xC3\xA4\xEF\xBC\x81\x1A"
                       "b"),
            "\xC3\xA4\xEF\xBC\x81\x1A"
            "b");
}

TEST(LineReader, TrimsBlanksAndPairsOfQuotes) {
  EXPECT_EQ(trimmed(" \t a b \r\n"), "a b");
  EXPECT_EQ(trimmed(" "), "");
  EXPECT_EQ(unquoted(" 'a b' "), "a b");
  EXPECT_EQ(unquoted("\"a\""), "a");
  EXPECT_EQ(unquoted("\"a'"), "\"a'");
  EXPECT_EQ(unquoted("\""), "\"");
}

}  // namespace
}  // namespace headroom
