#include "deploy/cli/process/child_output.h"

#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

ChildLine logged(log::Level level, const std::string& message) {
  return child_line(log::to_line({"12:03:44", level, message}));
}

TEST(ChildOutput, WarningsAndErrorsOfTheLogAreShownAtOnce) {
  EXPECT_TRUE(logged(log::Level::kWarn, "two bad").is_shown_at_once());
  EXPECT_TRUE(logged(log::Level::kError, "the disk").is_shown_at_once());
  EXPECT_FALSE(logged(log::Level::kInfo, "all is well").is_shown_at_once());
  for (const char* const words :
       {"[data] no such file: give another", "terminate called", "",
        "12:03:44 warning what a library prints in the log's words"}) {
    EXPECT_FALSE(child_line(words).is_shown_at_once()) << words;
  }
}

TEST(ChildOutput, ALineIsShownAsPeopleReadIt) {
  const ChildLine line = logged(log::Level::kWarn, "[gen 2] two  bad");
  EXPECT_EQ(line.text, "12:03:44 warning [gen 2] two  bad");
  EXPECT_EQ(line.record.value().message, "[gen 2] two  bad");
  EXPECT_EQ(child_line("terminate called").text, "terminate called");
}

TEST(ChildOutput, OutputOutsideTheLogIsPreferred) {
  const ChildLine first = logged(log::Level::kInfo, "a");
  const ChildLine second = logged(log::Level::kInfo, "b");
  EXPECT_EQ(
      telling_line({first, child_line("[data] b: c"), child_line("last")}),
      "last");
  EXPECT_EQ(telling_line({first, child_line("terminate called"), second}),
            "terminate called");
  EXPECT_EQ(telling_line({first, second, child_line("")}), "12:03:44 info b");
  EXPECT_EQ(telling_line({}), "");
}

}  // namespace
}  // namespace headroom::cli
