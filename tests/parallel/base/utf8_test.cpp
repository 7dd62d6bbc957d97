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

}  // namespace
}  // namespace headroom
