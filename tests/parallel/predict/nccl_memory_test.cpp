#include "parallel/predict/nccl_memory.h"

#include <gtest/gtest.h>

namespace headroom::predict {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr CardLinks kSwitched{.cards_of_machine = 8, .has_nvlink = true};

TEST(NcclMemory, GroupsOfTheSameRanksAreOne) {
  EXPECT_EQ(nccl_groups({1, 1, 1}, 0), 0);
  EXPECT_EQ(nccl_groups({1, 8, 1}, 0), 1 + 4) << "4 of shared groups";
  EXPECT_EQ(nccl_groups({1, 8, 1}, 3), 1 + 4);
  EXPECT_EQ(nccl_groups({1, 1, 2}, 0), 1 + 2) << "rows in two directions";
  EXPECT_EQ(nccl_groups({1, 4, 2}, 0), 2 + 4 + 2) << "all, an image's ranks";
  EXPECT_EQ(nccl_groups({1, 4, 2}, 1), 3 + 4 + 2) << "and ZeRO's";
  EXPECT_EQ(nccl_groups({2, 4, 1}, 0), 2 + 4 + 2) << "all, a stage's replicas";
  EXPECT_EQ(nccl_groups({2, 1, 1}, 0), 1 + 2);
  EXPECT_EQ(nccl_groups({2, 2, 2}, 2), 4 + 4);
}

TEST(NcclMemory, OneCardTakesNone) {
  EXPECT_EQ(nccl_bytes({1, 1, 1}, 0, kSwitched), 0);
}

TEST(NcclMemory, EightCardsBehindASwitch) {
  EXPECT_EQ(nccl_bytes({1, 8, 1}, 0, kSwitched) / kMiB, 473)
      << "294 + 4 x 36.8 of buffers, 32 of code";
}

TEST(NcclMemory, MachinesAddSendersAndPcieTakesFewChannels) {
  EXPECT_EQ(nccl_bytes({1, 64, 1}, 0, kSwitched) / kMiB, 620);
  EXPECT_EQ(nccl_bytes({1, 8, 1}, 0, {.cards_of_machine = 8}) / kMiB, 252);
  EXPECT_EQ(nccl_bytes({1, 2, 1}, 0, {.cards_of_machine = 2}) / kMiB, 68)
      << "a peer sends for ring and tree through the same buffers";
}

TEST(NcclMemory, EachDirectionOfMessagesHasItsOwn) {
  EXPECT_EQ(nccl_bytes({2, 1, 1}, 0, {.cards_of_machine = 2}) / kMiB, 68 + 74);
  EXPECT_EQ(nccl_bytes({3, 1, 1}, 0, kSwitched) / kMiB,
            (16 * 2 + 4 * 2 * 2) * 588 / 64 + 32);
}

}  // namespace
}  // namespace headroom::predict
