#include "deploy/cli/show/text_table.h"

#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

TEST(TextTable, ColumnsAreAsWideAsTheirWidestCell) {
  EXPECT_EQ(text_table({{"rank", "samples"}, {"0", "0-7"}, {"10", "8"}}),
            "  rank  samples\n"
            "  0     0-7\n"
            "  10    8\n");
  EXPECT_EQ(text_table({}), "");
  EXPECT_EQ(text_table({{"class", "labels"}, {"Äpfel", "3"}, {"自転車", "12"}}),
            "  class   labels\n"
            "  Äpfel   3\n"
            "  自転車  12\n");
}

}  // namespace
}  // namespace headroom::cli
