// Tests how a new generation chooses the step from which it continues, and how
// a state is sent as a message.
#include "worker/checkpoint/state_restore.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include "worker/checkpoint/peer_replicas.h"

namespace headroom::checkpoint {
namespace {

StateOffer offer(int rank, int64_t index, int64_t step,
                 std::vector<HeldRange> ranges) {
  return {rank, index, step, std::move(ranges)};
}

const std::vector<HeldRange> kNeeded = {{"parameters", 0, 0, 10},
                                        {"parameters", 3, 0, 6}};

TEST(ChooseState, TheNewestStepThatIsWhole) {
  const auto choice =
      choose_state(kNeeded, {offer(0, 0, 7, kNeeded), offer(1, 0, 8, kNeeded)});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->step, 8);
  ASSERT_EQ(choice->pieces.size(), 2u);
  EXPECT_EQ(choice->pieces[0].rank, 1);
}

TEST(ChooseState, ALostShardMeansOneStepBackForAll) {
  const HeldRange first = {"parameters", 0, 0, 5},
                  second = {"parameters", 0, 5, 5},
                  layer_3 = {"parameters", 3, 0, 6};
  // Rank 0 offers both versions of its own shard, but only the older version of
  // the lost rank's shard.
  const auto choice = choose_state(
      kNeeded, {offer(0, 0, 8, {first, layer_3}),
                offer(0, 1, 7, {first, layer_3}), offer(0, 2, 7, {second})});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->step, 7);
  ASSERT_EQ(choice->pieces.size(), 3u);
  EXPECT_EQ(choice->pieces[1].index, 2);
}

TEST(ChooseState, AHoleIsNoState) {
  EXPECT_FALSE(choose_state(
      kNeeded,
      {offer(0, 0, 8, {{"parameters", 0, 0, 5}, {"parameters", 3, 0, 6}}),
       offer(1, 0, 8, {{"parameters", 0, 6, 4}})}));
  EXPECT_FALSE(choose_state(kNeeded, {}));
  EXPECT_FALSE(choose_state(kNeeded, {offer(0, 0, 8, {})}));
}

TEST(ChooseState, PartsOfDifferentStepsMakeNone) {
  EXPECT_FALSE(
      choose_state(kNeeded, {offer(0, 0, 8, {{"parameters", 0, 0, 10}}),
                             offer(1, 0, 7, {{"parameters", 3, 0, 6}})}));
}

TEST(ChooseState, LargerRangesOfAnotherLayoutCoverToo) {
  const auto choice =
      choose_state(kNeeded, {offer(0, 0, 4, {{"parameters", 0, 0, 16}}),
                             offer(1, 0, 4, {{"parameters", 3, 0, 4}}),
                             offer(2, 0, 4, {{"parameters", 3, 4, 4}})});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->pieces.size(), 3u);
}

TEST(HostStateSnapshot, IsTheSameAfterItsWayAsAMessage) {
  HostStateSnapshot held;
  held.counters.committed_steps = 12;
  held.counters.best_fitness = 0.1 + 0.2;
  held.counters.class_maps = {0.1, 1.0 / 3, 0};
  held.counters.data = {37, ~uint64_t{0}};
  held.newest_line = "{\"step\":11}";
  held.parts.push_back({"parameters", 4, 3, at::rand({7}, at::kDouble)});
  held.parts.push_back({"statistics", 5, 0, at::rand({3}, at::kFloat)});
  const HostStateSnapshot again = unpack(pack(held));
  EXPECT_EQ(again.counters.committed_steps, 12);
  EXPECT_EQ(again.counters.best_fitness, held.counters.best_fitness);
  EXPECT_EQ(again.counters.class_maps, held.counters.class_maps);
  EXPECT_EQ(again.counters.data, held.counters.data);
  EXPECT_EQ(again.newest_line, held.newest_line);
  ASSERT_EQ(again.parts.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again.parts[i].buffer, held.parts[i].buffer);
    EXPECT_EQ(again.parts[i].layer, held.parts[i].layer);
    EXPECT_EQ(again.parts[i].begin, held.parts[i].begin);
    EXPECT_TRUE(at::equal(again.parts[i].values, held.parts[i].values));
  }
}

TEST(BuddyShift, AnotherMachineWhereThereIsOne) {
  EXPECT_EQ(buddy_shift(8, 4), 4);
  EXPECT_EQ(buddy_shift(4, 4), 1);
  EXPECT_EQ(buddy_shift(5, 3), 3);
  EXPECT_EQ(buddy_shift(2, 1), 1);
}

}  // namespace
}  // namespace headroom::checkpoint
