#include "parallel/data_parallel/vote.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::data_parallel {
namespace {

constexpr Outcome kOk = Outcome::kOk;
constexpr Outcome kBad = Outcome::kNonFinite;

struct Row {
  std::vector<Ballot> ballots;
  Verdict verdict;
};

// The full table of the vote, for all states of two and three ranks.
const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {{{kOk, false, 0}}, {kOk, false, -1}},
      {{{kOk, true, 0}}, {kOk, true, -1}},
      {{{kBad, false, 0}}, {kBad, false, 0}},
      {{{kOk, false, 0}, {kOk, false, 1}}, {kOk, false, -1}},
      {{{kOk, false, 0}, {kOk, true, 1}}, {kOk, true, -1}},
      {{{kOk, false, 0}, {kBad, false, 1}}, {kBad, false, 1}},
      {{{kBad, false, 0}, {kOk, false, 1}}, {kBad, false, 0}},
      {{{kBad, false, 0}, {kBad, false, 1}}, {kBad, false, 0}},
      {{{kOk, false, 0}, {kBad, false, 1}, {kBad, false, 2}}, {kBad, false, 1}},
      {{{kBad, true, 2147483647}, {kOk, true, 7}}, {kBad, true, 2147483647}},
      // One rank saves and leaves. In the second row, a checkpoint is also due
      // on the other rank.
      {{{kOk, false, 0, false, false, true}, {kOk, false, 1}},
       {kOk, false, -1, false, false, true}},
      {{{kOk, false, 0, false, false, true}, {kOk, false, 1, false, true}},
       {kOk, false, -1, false, true}},
      // The run's time is over. A request to stop has priority over this.
      {{{kOk, false, 0, false, false, false, true}, {kOk, false, 1}},
       {kOk, false, -1, false, false, false, true}},
      {{{kOk, false, 0, false, false, false, true}, {kOk, true, 1}},
       {kOk, true, -1}},
  };
  return rows;
}

TEST(VoteTest, TheTable) {
  for (size_t i = 0; i < table().size(); ++i) {
    EncodedBallot maxima = encode(table()[i].ballots.front());
    for (const Ballot& ballot : table()[i].ballots) {
      const EncodedBallot one = encode(ballot);
      for (size_t k = 0; k < maxima.size(); ++k) {
        maxima[k] = std::max(maxima[k], one[k]);
      }
    }
    EXPECT_EQ(decode(maxima), table()[i].verdict) << "row " << i;
  }
}

TEST(VoteTest, ANegativeRankIsRefused) {
  EXPECT_THROW(encode({kOk, false, -1}), CheckFailure);
}

}  // namespace
}  // namespace headroom::data_parallel
