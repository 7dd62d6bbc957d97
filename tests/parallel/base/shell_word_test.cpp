#include "parallel/base/utf8.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(ShellWord, PlainPathsStayAsTheyAre) {
  EXPECT_EQ(shell_word("/runs/train/exp2"), "/runs/train/exp2");
  EXPECT_EQ(shell_word("a-b_c.d=e:f,g@h%i+j"), "a-b_c.d=e:f,g@h%i+j");
}

TEST(ShellWord, TextThatAShellWouldChangeIsQuoted) {
  EXPECT_EQ(shell_word("/my runs/exp"), "'/my runs/exp'");
  EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
  EXPECT_EQ(shell_word("~/runs"), "'~/runs'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace headroom
