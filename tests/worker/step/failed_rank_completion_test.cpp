#include "worker/step/collective_schedule.h"

#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::step {
namespace {

using Kind = pipeline::Instruction::Kind;
constexpr auto kX = PassEntry::kExchange;
constexpr auto kR = PassEntry::kLayerCollective;
constexpr zero::LayerCollective::Kind kGather =
    zero::LayerCollective::Kind::kGather;
constexpr zero::LayerCollective::Kind kScatter =
    zero::LayerCollective::Kind::kScatter;
using Entries = std::vector<PassEntry>;

// Layers 0, 1 and 3 have weights, 2 exchanges without any; layer 1 exchanges
// twice.
TEST(FailedRankCompletion, ForwardGathersALayerBeforeItsExchanges) {
  EXPECT_EQ(merged_pass(Kind::kForward, {0, 1, 1, 2, 3},
                        {{kGather, 0}, {kGather, 1}, {kGather, 2}}, {0, 1, 3}),
            (Entries{kR, kX, kR, kX, kX, kX, kR, kX}));
}

TEST(FailedRankCompletion, BackwardScattersALayerAfterItsExchanges) {
  EXPECT_EQ(merged_pass(Kind::kBackward, {3, 2, 1, 1, 0},
                        {{kGather, 2},
                         {kScatter, 2},
                         {kGather, 1},
                         {kScatter, 1},
                         {kGather, 0},
                         {kScatter, 0}},
                        {3, 3, 1, 1, 0, 0}),
            (Entries{kR, kX, kR, kX, kR, kX, kX, kR, kR, kX, kR}));
  EXPECT_EQ(merged_pass(Kind::kBackward, {3, 2, 1, 1, 0},
                        {{kScatter, 2}, {kScatter, 1}}, {3, 1}),
            (Entries{kX, kR, kX, kX, kX, kR, kX}));
}

TEST(FailedRankCompletion, OneKindAlone) {
  EXPECT_EQ(merged_pass(Kind::kForward, {}, {{kGather, 0}}, {4}),
            (Entries{kR}));
  EXPECT_EQ(merged_pass(Kind::kForward, {1, 2}, {}, {}), (Entries{kX, kX}));
  EXPECT_TRUE(merged_pass(Kind::kBackward, {}, {}, {}).empty());
}

TEST(FailedRankCompletion, EveryCollectiveHasItsLayer) {
  EXPECT_THROW(merged_pass(Kind::kForward, {}, {{kGather, 0}}, {}),
               CheckFailure);
}

}  // namespace
}  // namespace headroom::step
