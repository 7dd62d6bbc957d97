#include "parallel/activations/memory_timeline.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "parallel/activations/counting_allocator.h"

namespace headroom::activations {
namespace {

using Kind = MemoryTimeline::Kind;

constexpr auto kActivations = static_cast<size_t>(MemoryCategory::kActivations);
constexpr auto kLoss = static_cast<size_t>(MemoryCategory::kLoss);
constexpr auto kWorkspace = static_cast<size_t>(MemoryCategory::kWorkspace);
constexpr auto kOther = static_cast<size_t>(MemoryCategory::kOther);

// The events with their times set to 0.
std::vector<MemoryTimeline::Event> untimed(const MemoryTimeline& timeline) {
  std::vector<MemoryTimeline::Event> events = timeline.events();
  for (MemoryTimeline::Event& event : events) event.nanoseconds = 0;
  return events;
}

// Runs `body` on a thread whose account starts empty.
template <typename Body>
void alone(Body body) {
  CountingAllocator::install();
  std::thread([&body] {
    CountingAllocator::count_separately();
    body(CountingAllocator::instance());
  }).join();
}

TEST(MemoryCategories, TheInnermostScopeCountsUntilTheMemoryIsFreed) {
  alone([](CountingAllocator& allocator) {
    at::Tensor outer, inner;
    {
      const MemoryCategoryScope maps(MemoryCategory::kActivations);
      outer = at::empty({100}, at::kByte);
      {
        const MemoryCategoryScope loss(MemoryCategory::kLoss);
        inner = at::empty({10}, at::kByte);
      }
      at::empty({1000}, at::kByte);
    }
    const at::Tensor outside = at::empty({1}, at::kByte);
    CategoryBytes live{}, peak{};
    live[kActivations] = 100;
    live[kLoss] = 10;
    live[kOther] = 1;
    peak = live;
    peak[kActivations] = 1100;
    EXPECT_EQ(allocator.live_by_category(), live);
    EXPECT_EQ(allocator.peak_by_category(), peak);
    inner.reset();
    live[kLoss] = 0;
    EXPECT_EQ(allocator.live_by_category(), live);
    allocator.reset_peak();
    EXPECT_EQ(allocator.peak_by_category(), live);
    EXPECT_EQ(allocator.live_bytes(), 101);
  });
}

TEST(MemoryCategories, ALibrarysResultsKeepTheCategoryAroundTheCall) {
  alone([](CountingAllocator& allocator) {
    const MemoryCategoryScope maps(MemoryCategory::kActivations);
    at::Tensor result, scratch, other;
    {
      const WorkspaceScope call(64, 8);
      scratch = at::empty({500}, at::kByte);
      result = at::empty({64}, at::kByte);
      other = at::empty({8}, at::kByte);
    }
    const at::Tensor after = at::empty({500}, at::kByte);
    CategoryBytes live{};
    live[kActivations] = 64 + 8 + 500;
    live[kWorkspace] = 500;
    EXPECT_EQ(allocator.live_by_category(), live);
  });
}

TEST(MemoryCategories, ARefusedAllocationCountsNowhere) {
  alone([](CountingAllocator& allocator) {
    allocator.set_limit(100);
    EXPECT_ANY_THROW(at::empty({101}, at::kByte));
    EXPECT_EQ(allocator.live_by_category(), CategoryBytes{});
    EXPECT_EQ(allocator.peak_by_category(), CategoryBytes{});
  });
}

TEST(MemoryTimeline, RecordsEveryChangeWhileItIsSet) {
  alone([](CountingAllocator& allocator) {
    MemoryTimeline timeline(100);
    const at::Tensor before = at::empty({7}, at::kByte);
    timeline.resume(allocator.live_by_category());
    allocator.set_timeline(&timeline);
    {
      const MemoryCategoryScope maps(MemoryCategory::kActivations);
      const at::Tensor a = at::empty({30}, at::kByte);
      const at::Tensor b = at::empty({4}, at::kByte);
    }
    allocator.set_timeline(nullptr);
    const at::Tensor unseen = at::empty({9}, at::kByte);

    std::vector<MemoryTimeline::Event> expected;
    for (int32_t i = 0; i < static_cast<int32_t>(kNumMemoryCategories); ++i) {
      expected.push_back({0, i == 0 ? 7 : 0, Kind::kLive, i});
    }
    for (const int64_t bytes : {30, 34, 30, 0}) {
      expected.push_back(
          {0, bytes, Kind::kLive, static_cast<int32_t>(kActivations)});
    }
    EXPECT_EQ(untimed(timeline), expected);
    EXPECT_FALSE(timeline.is_full());
    const auto events = timeline.events();
    for (size_t i = 1; i < events.size(); ++i) {
      EXPECT_GE(events[i].nanoseconds, events[i - 1].nanoseconds);
    }
  });
}

TEST(MemoryTimeline, PhasesAreThoseOfTheThreadThatIsObserved) {
  MemoryTimeline timeline(100);
  EXPECT_EQ(observe_step_phases(&timeline), nullptr);
  begin_step_phase(StepPhase::kForward);
  std::thread([] { begin_step_phase(StepPhase::kVote); }).join();
  EXPECT_EQ(observe_step_phases(nullptr), &timeline);
  begin_step_phase(StepPhase::kCommit);
  const auto events = timeline.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, Kind::kPhase);
  EXPECT_EQ(events[0].index, static_cast<int32_t>(StepPhase::kForward));
  EXPECT_EQ(events[1].kind, Kind::kUncounted);
  EXPECT_GT(events[1].bytes, 1 << 20) << "this process's resident set";
}

TEST(MemoryTimeline, StopsWhenItIsFullAndReportsIt) {
  MemoryTimeline timeline(3);
  for (int i = 0; i < 3; ++i) timeline.note(MemoryCategory::kLoss, 1);
  EXPECT_FALSE(timeline.is_full());
  timeline.note(MemoryCategory::kLoss, 1);
  EXPECT_TRUE(timeline.is_full());
  EXPECT_EQ(timeline.events().size(), 3u);
  EXPECT_EQ(timeline.events().back().bytes, 3);
}

}  // namespace
}  // namespace headroom::activations
