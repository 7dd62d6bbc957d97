#include "deploy/cli/show/terminal.h"

#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

TEST(TextTable, ColumnsAreAsWideAsTheirWidestCell) {
  EXPECT_EQ(text_table({{"rank", "samples"}, {"0", "0-7"}, {"10", "8"}}),
            "  rank  samples\n"
            "  0     0-7\n"
            "  10    8\n");
  EXPECT_EQ(text_table({}), "");
}

}  // namespace
}  // namespace headroom::cli
