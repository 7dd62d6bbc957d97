#include "parallel/activations/counting_allocator.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

// Without this option, AddressSanitizer ends the program instead of refusing an
// absurd size.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

namespace headroom::activations {
namespace {

class CountingAllocatorTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { CountingAllocator::install(); }
  void SetUp() override {
    allocator_.reset_peak();
    start_ = allocator_.live_bytes();
  }
  void TearDown() override {
    allocator_.set_limit(CountingAllocator::kNoLimit);
    allocator_.fail_allocation(0);
    EXPECT_EQ(allocator_.live_bytes(), start_) << "bytes left";
  }
  int64_t live() const { return allocator_.live_bytes() - start_; }
  int64_t peak() const { return allocator_.peak_bytes() - start_; }

  CountingAllocator& allocator_ = CountingAllocator::instance();
  int64_t start_ = 0;
};

TEST_F(CountingAllocatorTest, LiveAndPeakAreExact) {
  {
    const at::Tensor a = at::empty({1000}, at::kFloat);
    EXPECT_EQ(live(), 4000);
    {
      const at::Tensor b = at::empty({3}, at::kDouble);
      EXPECT_EQ(live(), 4024);
    }
    EXPECT_EQ(live(), 4000);
    EXPECT_EQ(peak(), 4024);
    allocator_.reset_peak();
    EXPECT_EQ(peak(), 4000);
    const at::Tensor view = a.view({10, 100}).t();
    EXPECT_EQ(live(), 4000) << "a view owns nothing";
    const at::Tensor c = a + a;
    EXPECT_EQ(live(), 8000);
  }
  EXPECT_EQ(live(), 0);
  EXPECT_EQ(peak(), 8000);
}

TEST_F(CountingAllocatorTest, BlocksKeepTheirAlignment) {
  for (const int64_t size : {1, 3, 64, 1000, 100000}) {
    const at::Tensor tensor = at::empty({size}, at::kByte);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0u) << size;
  }
}

TEST_F(CountingAllocatorTest, TheLimitThrowsTheRealError) {
  allocator_.set_limit(start_ + 10000);
  const at::Tensor fits = at::empty({10000}, at::kByte);
  try {
    at::empty({1}, at::kByte);
    FAIL() << "above the limit";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                testing::AllOf(testing::HasSubstr("memory limit"),
                               testing::HasSubstr("asked for 1 B")));
  }
  EXPECT_EQ(live(), 10000) << "a refused block is not counted";
  EXPECT_EQ(peak(), 10000);
  allocator_.set_limit(CountingAllocator::kNoLimit);
  EXPECT_NO_THROW(at::empty({100000}, at::kByte));
}

TEST_F(CountingAllocatorTest, AnAbsurdSizeIsOutOfMemoryToo) {
  EXPECT_THROW(allocator_.allocate(SIZE_MAX - 8), c10::OutOfMemoryError);
  // No machine has this much memory, so the system itself refuses.
  EXPECT_THROW(allocator_.allocate(size_t{1} << 60), c10::OutOfMemoryError);
  EXPECT_EQ(live(), 0);
}

TEST_F(CountingAllocatorTest, ZeroBytesAreNoAllocation) {
  const int64_t before = allocator_.allocations();
  allocator_.fail_allocation(1);
  EXPECT_NO_THROW(allocator_.allocate(0));
  EXPECT_NO_THROW(at::empty({0}));
  EXPECT_EQ(allocator_.allocations(), before);
  EXPECT_THROW(at::empty({1}), c10::OutOfMemoryError);
}

TEST_F(CountingAllocatorTest, TheNthAllocationFailsOnce) {
  allocator_.fail_allocation(3);
  EXPECT_NO_THROW(at::empty({1}));
  EXPECT_NO_THROW(at::empty({1}));
  EXPECT_THROW(at::empty({1}), c10::OutOfMemoryError);
  EXPECT_NO_THROW(at::empty({1}));
}

TEST_F(CountingAllocatorTest, CountsAreRightWithSeveralThreads) {
  constexpr int kThreads = 4;
  constexpr int64_t kBytes = 4096;
  std::atomic<int> holding{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&holding] {
      for (int k = 0; k < 2000; ++k) at::empty({kBytes}, at::kByte);
      const at::Tensor held = at::empty({kBytes}, at::kByte);
      ++holding;
      while (holding < kThreads) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(live(), 0);
  EXPECT_EQ(peak(), kThreads * kBytes);
}

// oneDNN allocates its scratch memory with raw_allocate, which asserts that our
// blocks have a certain form.
class ConvolutionTest : public CountingAllocatorTest,
                        public testing::WithParamInterface<at::MemoryFormat> {
 protected:
  // Runs one step of two layers; returns the sum of their gradients.
  static double step(at::MemoryFormat format) {
    const at::Tensor x =
        at::arange(4 * 16 * 20 * 20, at::kFloat).view({4, 16, 20, 20}).sin();
    at::Tensor w1 = at::arange(32 * 16 * 9, at::kFloat)
                        .view({32, 16, 3, 3})
                        .cos()
                        .contiguous(format);
    at::Tensor w2 = at::arange(8 * 32, at::kFloat)
                        .view({8, 32, 1, 1})
                        .sin()
                        .contiguous(format);
    w1.set_requires_grad(true);
    w2.set_requires_grad(true);
    const at::Tensor y = at::silu(at::conv2d(x.contiguous(format), w1, {},
                                             /*stride=*/2, /*padding=*/1));
    at::sigmoid(at::conv2d(y, w2)).sum().backward();
    return w1.grad().abs().sum().item<double>() +
           w2.grad().abs().sum().item<double>();
  }

  // A failed backward leaves nodes and their tensors in the thread's queue
  // until the next backward.
  static void release_failed_graph() {
    const at::Tensor one = at::ones({1});
    one.set_requires_grad(true);
    (one * 1.0).backward();
  }
};

TEST_P(ConvolutionTest, RunsAndCounts) {
  step(GetParam());
  const int64_t before = allocator_.live_bytes();
  const double first = step(GetParam());
  EXPECT_EQ(allocator_.live_bytes(), before);
  // At least the input and the first layer's output were live together.
  EXPECT_GT(peak(), 4 * (4 * 16 * 20 * 20 + 4 * 32 * 10 * 10));
  EXPECT_EQ(step(GetParam()), first);
}

TEST_P(ConvolutionTest, EveryFailedAllocationIsSurvived) {
  at::set_num_threads(1);
  const double expected = step(GetParam());
  const int64_t before = allocator_.allocations();
  step(GetParam());
  const int64_t count = allocator_.allocations() - before;
  ASSERT_GT(count, 20);
  for (int64_t n = 1; n <= count; ++n) {
    allocator_.fail_allocation(n);
    EXPECT_THROW(step(GetParam()), c10::OutOfMemoryError) << "allocation " << n;
    release_failed_graph();
    EXPECT_EQ(allocator_.live_bytes(), start_) << "after allocation " << n;
  }
  EXPECT_EQ(step(GetParam()), expected);
}

INSTANTIATE_TEST_SUITE_P(Formats, ConvolutionTest,
                         testing::Values(at::MemoryFormat::Contiguous,
                                         at::MemoryFormat::ChannelsLast),
                         [](const auto& info) {
                           return info.param == at::MemoryFormat::Contiguous
                                      ? "channels_first"
                                      : "channels_last";
                         });

TEST_F(CountingAllocatorTest, ARefusalGivesTheRequestedAndTheFreeBytes) {
  CountingAllocator::take_refusal();  // removes the refusal of an earlier test
  EXPECT_FALSE(CountingAllocator::take_refusal());
  allocator_.set_limit(start_ + 1000);
  const at::Tensor held = at::empty({400}, at::kByte);
  EXPECT_THROW(at::empty({700}, at::kByte), c10::OutOfMemoryError);
  const auto refusal = CountingAllocator::take_refusal();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->asked_bytes, 700);
  EXPECT_EQ(refusal->live_bytes, start_ + 400);
  EXPECT_EQ(refusal->limit_bytes, start_ + 1000);
  EXPECT_FALSE(CountingAllocator::take_refusal()) << "told once";
}

TEST_F(CountingAllocatorTest, AnInjectedFailureIsOfTheThreadThatArmedIt) {
  allocator_.fail_allocation(1);
  std::thread([] { EXPECT_NO_THROW(at::empty({8})); }).join();
  EXPECT_EQ(CountingAllocator::pending_failure(), 1);
  EXPECT_THROW(at::empty({8}), c10::OutOfMemoryError);
}

TEST_F(CountingAllocatorTest, HostMemoryIsCountedApartAndHasNoLimit) {
  at::Tensor made;
  std::thread([&made] {
    CountingAllocator::count_as_host_memory();
    CountingAllocator::instance().reset_peak();
    made = at::empty({5000}, at::kByte);
    EXPECT_EQ(CountingAllocator::instance().live_bytes(), 5000);
  }).join();
  EXPECT_EQ(live(), 0);
  EXPECT_EQ(peak(), 0);
  made = at::Tensor();
  EXPECT_EQ(live(), 0) << "freed where it was counted";
  std::thread([] {
    CountingAllocator::count_as_host_memory();
    EXPECT_EQ(CountingAllocator::instance().live_bytes(), 0)
        << "one account for all such threads";
  }).join();
}

TEST(CountingAllocatorThreads, ARankOfItsOwnCountsBoundsAndFailsAlone) {
  CountingAllocator::install();
  CountingAllocator& allocator = CountingAllocator::instance();
  const int64_t before = allocator.live_bytes();
  at::Tensor kept;
  std::thread([&] {
    CountingAllocator::count_separately();
    EXPECT_EQ(allocator.live_bytes(), 0);
    kept = at::empty({1000}, at::kByte);
    EXPECT_EQ(allocator.live_bytes(), 1000);
    EXPECT_EQ(allocator.peak_bytes(), 1000);
    allocator.set_limit(1500);
    EXPECT_THROW(at::empty({501}, at::kByte), c10::OutOfMemoryError);
  }).join();
  EXPECT_EQ(allocator.live_bytes(), before);
  EXPECT_EQ(allocator.limit(), CountingAllocator::kNoLimit);
  kept.reset();  // freed by this thread, but counted by the other account
  EXPECT_EQ(allocator.live_bytes(), before);
}

}  // namespace
}  // namespace headroom::activations
