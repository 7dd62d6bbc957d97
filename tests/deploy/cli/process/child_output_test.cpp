#include "deploy/cli/process/child_output.h"

#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

TEST(ChildOutput, WarningsAndErrorsOfTheLogAreShownAtOnce) {
  EXPECT_TRUE(is_shown_at_once("12:03:44 warning [gen 2 rank 1/2] two bad"));
  EXPECT_TRUE(is_shown_at_once("12:03:44 error the disk"));
  EXPECT_FALSE(is_shown_at_once("12:03:44 info all is well"));
  EXPECT_FALSE(is_shown_at_once("[data] no such file: give another"));
  EXPECT_FALSE(is_shown_at_once("terminate called"));
  EXPECT_FALSE(is_shown_at_once("12:03:4x warning"));
  EXPECT_FALSE(is_shown_at_once(""));
}

TEST(ChildOutput, ALogLineHasALevelAndAMessage) {
  const LogLine line = split_log_line("12:03:44 warning [gen 2] two  bad");
  EXPECT_EQ(line.level, "warning");
  EXPECT_EQ(line.message, "[gen 2] two  bad");
  EXPECT_EQ(split_log_line("12:03:44 info").level, "info");
  EXPECT_EQ(split_log_line("terminate called").level, "output");
  EXPECT_EQ(split_log_line("terminate called").message, "terminate called");
}

TEST(ChildOutput, WhatIsNoLogLineTellsMost) {
  EXPECT_EQ(telling_line("12:00:00 info a\n[data] b: c\nlast\n"), "last");
  EXPECT_EQ(telling_line("12:00:00 info a\nterminate called\n12:00:01 info\n"),
            "terminate called");
  EXPECT_EQ(telling_line("12:00:00 info a\n12:00:01 info b\n\n"),
            "12:00:01 info b");
  EXPECT_EQ(telling_line(""), "");
}

}  // namespace
}  // namespace headroom::cli
