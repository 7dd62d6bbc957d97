#include "deploy/records/bounded_lines.h"

#include <gtest/gtest.h>

namespace headroom::records {
namespace {

std::string rest_of(BoundedLines lines) {
  std::string rest;
  while (!lines.empty()) rest += lines.take_oldest();
  return rest;
}

TEST(BoundedLines, TheOldestAreDroppedAndCounted) {
  BoundedLines lines(/*most_lines=*/3, /*most_bytes=*/10);
  for (const char* line : {"a", "b", "c"}) lines.add(line);
  EXPECT_EQ(lines.dropped(), 0);
  lines.add("d");
  EXPECT_EQ(rest_of(lines), "bcd");
  EXPECT_EQ(lines.dropped(), 1);
  lines.add("12345678");
  EXPECT_EQ(rest_of(lines), "cd12345678");
  lines.add("9");
  EXPECT_EQ(rest_of(lines), "d123456789");
  EXPECT_EQ(lines.dropped(), 3);
}

TEST(BoundedLines, TheNewestIsNeverDropped) {
  BoundedLines lines(/*most_lines=*/3, /*most_bytes=*/4);
  lines.add("a");
  lines.add("a long line");
  EXPECT_EQ(rest_of(lines), "a long line");
  lines.add_beyond_limits("the end");
  EXPECT_EQ(rest_of(lines), "a long linethe end");
  EXPECT_EQ(lines.dropped(), 1);
}

}  // namespace
}  // namespace headroom::records
