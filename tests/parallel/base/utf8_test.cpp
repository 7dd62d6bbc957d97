#include "parallel/base/utf8.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(ValidUtf8, TextIsLeftAlone) {
  EXPECT_EQ(valid_utf8(""), "");
  EXPECT_EQ(valid_utf8("plain\n\ttext"), "plain\n\ttext");
  const std::string text = "\u00e9 \u20ac \U0001F680 \uFFFD";
  EXPECT_EQ(valid_utf8(text), text);
}

TEST(ValidUtf8, EveryForeignByteBecomesAQuestionMark) {
  EXPECT_EQ(valid_utf8("a\xff\xfe"
                       "b"),
            "a??b");
  EXPECT_EQ(valid_utf8("\x80"), "?");                 // continuation alone
  EXPECT_EQ(valid_utf8("\xe2\x82"), "??");            // cut in the middle
  EXPECT_EQ(valid_utf8("\xe2(\xa1"), "?(?");          // broken off
  EXPECT_EQ(valid_utf8("\xc0\xaf"), "??");            // overlong '/'
  EXPECT_EQ(valid_utf8("\xe0\x80\xaf"), "???");       // overlong
  EXPECT_EQ(valid_utf8("\xf0\x80\x80\xaf"), "????");  // overlong
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "???");       // surrogate
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), "????");  // above U+10FFFF
  EXPECT_EQ(valid_utf8("\xf5\x80\x80\x80"), "????");
}

TEST(DisplayWidth, ColumnsOfATerminal) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("car"), 3u);
  EXPECT_EQ(display_width("Äpfel"), 5u);
  EXPECT_EQ(display_width("自転車"), 6u);
  EXPECT_EQ(display_width("e\xcc\x81"), 1u);  // e and an accent
  EXPECT_EQ(display_width("a\xff"), 2u);
  EXPECT_EQ(display_width(std::string("a\0b", 3)), 2u);
  EXPECT_EQ(padded("Äpfel", 7), "Äpfel  ");
  EXPECT_EQ(padded("自転車", 5), "自転車");
}

}  // namespace
}  // namespace headroom
