#include "parallel/zero/collective_list.h"

#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::zero {
namespace {

std::string text(const std::vector<LayerCollective>& list) {
  std::string all;
  for (const LayerCollective& collective : list) {
    all += (all.empty() ? "" : ", ") + to_string(collective);
  }
  return all;
}

TEST(CollectiveListTest, ForwardGathersInOrder) {
  EXPECT_EQ(text(forward_list({0, 1, 4})), "gather 0, gather 1, gather 4");
}

TEST(CollectiveListTest, BackwardGathersInReverseOrder) {
  EXPECT_EQ(text(backward_list({0, 1, 4}, Gathers::kInTurn)),
            "gather 4, scatter 4, gather 1, scatter 1, gather 0, scatter 0");
  EXPECT_EQ(text(backward_list({0, 1, 4}, Gathers::kNone)),
            "scatter 4, scatter 1, scatter 0");
  EXPECT_EQ(text(backward_list({0, 1, 4}, Gathers::kAhead)),
            "gather 4, gather 1, scatter 4, gather 0, scatter 1, scatter 0");
  EXPECT_EQ(text(backward_list({7}, Gathers::kAhead)), "gather 7, scatter 7");
  EXPECT_EQ(text(backward_list({}, Gathers::kAhead)), "");
}

TEST(CollectiveCursorTest, RefusesEveryOtherOrder) {
  CollectiveCursor cursor;
  EXPECT_TRUE(cursor.done());
  cursor.begin(backward_list({0, 1}, Gathers::kInTurn));
  const LayerCollective gather{LayerCollective::Kind::kGather, 1};
  const LayerCollective scatter{LayerCollective::Kind::kScatter, 1};
  EXPECT_THROW(cursor.pass(scatter), CheckFailure);
  cursor.pass(gather);
  EXPECT_TRUE(cursor.next_is(scatter));
  EXPECT_THROW(cursor.pass(gather), CheckFailure);
  EXPECT_THROW(cursor.begin({}), CheckFailure);
}

}  // namespace
}  // namespace headroom::zero
