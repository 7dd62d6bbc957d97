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

TEST(Printable, NoTextControlsATerminal) {
  EXPECT_EQ(printable("plain \xc3\xa4\n\ttext"), "plain \xc3\xa4\n\ttext");
  EXPECT_EQ(printable("a\x1b[2Jb\x7f\r"), "a\\x1b[2Jb\\x7f\\x0d");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");
  EXPECT_EQ(printable("gpj.\xe2\x80\xaetac"), "gpj.\\xe2\\x80\\xaetac");
  EXPECT_EQ(printable("\xff"), "?");
}

TEST(ShortLine, IsShortAndOneLine) {
  EXPECT_EQ(short_line("two\nlines", 100), "two lines");
  EXPECT_EQ(short_line("0123456789", 10), "0123456789");
  EXPECT_EQ(short_line("0123456789a", 10), "0123456...");
  EXPECT_EQ(short_line(std::string(4, '\x1b'), 10), "\\x1b\\x1...");
  EXPECT_EQ(short_line("012345\xc3\xa4\xc3\xa4", 10), "012345\xc3\xa4\xc3\xa4");
  EXPECT_EQ(short_line("012345\xc3\xa4\xc3\xa4 ", 10), "012345...");
}

TEST(Shortened, KeepsTheLinesAndCutsBetweenCharacters) {
  EXPECT_EQ(shortened("two\nlines", 100), "two\nlines");
  EXPECT_EQ(shortened("two\nlines", 8), "two\nl...");
  EXPECT_EQ(shortened("012345\xc3\xa4\xc3\xa4 ", 10), "012345...");
  EXPECT_EQ(shortened("0123456\xc3\xa4\xc3\xa4", 10), "0123456...");
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
