#include "parallel/cuda/memory_account.h"

#include <gtest/gtest.h>

#include <numeric>

#include "parallel/base/memory_category.h"

namespace headroom::cuda {
namespace {

TEST(MemoryAccount, CountsBlocksByCategoryAndAddress) {
  MemoryAccount account;
  account.take(0x1000, 512, MemoryCategory::kActivations);
  account.take(0x2000, 100, MemoryCategory::kWorkspace);
  EXPECT_EQ(account.live_bytes(), 612);
  account.give_back(0x2000);
  account.take(0x2000, 50, MemoryCategory::kLoss);
  EXPECT_EQ(account.live_bytes(), 562);
  EXPECT_EQ(account.peak_bytes(), 612);
  EXPECT_EQ(account.allocations(), 3);
  const activations::CategoryBytes live = account.live_by_category();
  EXPECT_EQ(live[static_cast<size_t>(MemoryCategory::kActivations)], 512);
  EXPECT_EQ(live[static_cast<size_t>(MemoryCategory::kWorkspace)], 0);
  EXPECT_EQ(live[static_cast<size_t>(MemoryCategory::kLoss)], 50);
  EXPECT_EQ(std::accumulate(live.begin(), live.end(), int64_t{0}),
            account.live_bytes());
  EXPECT_EQ(
      account
          .peak_by_category()[static_cast<size_t>(MemoryCategory::kWorkspace)],
      100);
}

TEST(MemoryAccount, PeaksStartAgainFromWhatIsLive) {
  MemoryAccount account;
  account.take(0x1000, 512, MemoryCategory::kOther);
  account.take(0x2000, 512, MemoryCategory::kOther);
  account.give_back(0x1000);
  account.reset_peak();
  EXPECT_EQ(account.peak_bytes(), 512);
  EXPECT_EQ(
      account.peak_by_category()[static_cast<size_t>(MemoryCategory::kOther)],
      512);
}

TEST(MemoryAccount, BlocksFromBeforeAreIgnored) {
  MemoryAccount account;
  account.give_back(0x3000);
  EXPECT_EQ(account.live_bytes(), 0);
}

TEST(MemoryAccount, RecordsTheTimeline) {
  activations::MemoryTimeline timeline(10);
  MemoryAccount account;
  account.set_timeline(&timeline);
  account.take(0x1000, 512, MemoryCategory::kLoss);
  account.give_back(0x1000);
  account.set_timeline(nullptr);
  account.take(0x1000, 512, MemoryCategory::kLoss);
  std::vector<int64_t> live;
  for (const activations::MemoryTimeline::Event& event : timeline.events()) {
    if (event.kind == activations::MemoryTimeline::Kind::kLive &&
        event.index == static_cast<int32_t>(MemoryCategory::kLoss)) {
      live.push_back(event.bytes);
    }
  }
  EXPECT_EQ(live, (std::vector<int64_t>{512, 0}));
}

}  // namespace
}  // namespace headroom::cuda
