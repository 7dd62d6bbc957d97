#include "worker/data/loader/read_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace headroom::loader {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

std::vector<int64_t> numbers(int64_t begin, int64_t count) {
  std::vector<int64_t> result(static_cast<size_t>(count));
  std::iota(result.begin(), result.end(), begin);
  return result;
}

TEST(ReadingPace, FollowsTheNewestFiles) {
  ReadingPace pace;
  EXPECT_FALSE(pace.is_slow());
  pace.note(milliseconds(5));  // one slow file is no evidence
  EXPECT_FALSE(pace.is_slow());
  for (int i = 0; i < 4; ++i) pace.note(milliseconds(5));
  EXPECT_TRUE(pace.is_slow());
  for (int i = 0; i < 30; ++i) pace.note(microseconds(40));
  EXPECT_FALSE(pace.is_slow());
  pace.note(milliseconds(60000));  // has an effect for some twenty files
  for (int i = 0; i < 20; ++i) pace.note(microseconds(40));
  EXPECT_FALSE(pace.is_slow());
}

// Waits at most ten seconds for the work of other threads.
template <typename Condition>
bool comes_true(const Condition& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  return condition();
}

TEST(ReadAhead, ReadsFewOfThemWhereFilesAreFast) {
  std::atomic<int> read = 0;
  ReadAhead ahead([&](int64_t) {
    ++read;
    return microseconds(30);
  });
  ahead.want(numbers(0, 160));
  EXPECT_TRUE(comes_true([&] { return read == 10; }));
  ahead.want(numbers(160, 160));
  EXPECT_TRUE(comes_true([&] { return read == 20; }));
}

TEST(ReadAhead, ReadsAllOfThemManyAtOnceWhereFilesAreSlow) {
  std::mutex mutex;
  std::set<int64_t> read;
  std::atomic<int> now = 0, most = 0;
  ReadAhead ahead([&](int64_t sample) {
    const int at_once = ++now;
    int known = most;
    while (known < at_once && !most.compare_exchange_weak(known, at_once)) {
    }
    std::this_thread::sleep_for(milliseconds(20));
    --now;
    const std::lock_guard lock(mutex);
    read.insert(sample);
    return microseconds(20000);
  });
  ahead.want(numbers(0, 160));
  EXPECT_TRUE(comes_true([&] {
    const std::lock_guard lock(mutex);
    return read.size() == 10;
  }));
  ahead.want(numbers(1000, 200));
  EXPECT_TRUE(comes_true([&] {
    const std::lock_guard lock(mutex);
    return std::count_if(read.begin(), read.end(),
                         [](int64_t sample) { return sample >= 1000; }) == 200;
  }));
  EXPECT_GT(most, 8);
}

// Samples that need no reading have no effect on the measured pace.
TEST(ReadAhead, OnlyReadsDecideWhetherItIsSlow) {
  std::atomic<int> asked = 0;
  ReadAhead ahead([&](int64_t sample) -> std::optional<microseconds> {
    ++asked;
    if (sample % 2 == 0) throw std::runtime_error("unreadable");
    return sample < 1000 ? std::optional(microseconds(9000)) : std::nullopt;
  });
  ahead.want(numbers(1, 160));  // every 16th of them is requested
  EXPECT_TRUE(comes_true([&] { return asked == 10; }));
  for (int i = 0; i < 3; ++i) ahead.want(numbers(1001, 100));
  EXPECT_TRUE(comes_true([&] { return asked == 310; }));
}

TEST(ReadAhead, EndsWithoutReadingTheQueuedFiles) {
  std::atomic<int> read = 0;
  const auto begin = std::chrono::steady_clock::now();
  {
    ReadAhead ahead([&](int64_t) {
      ++read;
      std::this_thread::sleep_for(milliseconds(50));
      return microseconds(50000);
    });
    ahead.want(numbers(0, 4000));
  }
  EXPECT_LT(read, 100);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace headroom::loader
