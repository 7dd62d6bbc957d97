#include "parallel/machine/core_wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "parallel/machine/machine_limits.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;

TEST(CoreWait, CountsTheWaitsOfASilence) {
  struct Look {
    int64_t now_ms, coreless_ms, quiet_ms, expected_ms;
  };
  const struct {
    const char* name;
    std::vector<Look> looks;
  } rows[] = {
      {"no wait", {{0, 500, 1000, 0}, {250, 500, 1250, 0}}},
      {"the waits before the first look do not count",
       {{0, 9000, 1000, 0}, {250, 9100, 1250, 100}, {500, 9300, 1500, 300}}},
      {"threads that wait at once count once",
       {{0, 0, 1000, 0}, {250, 1000, 1250, 250}, {500, 2000, 1500, 500}}},
      {"a thread that ends takes nothing away",
       {{0, 5000, 1000, 0},
        {250, 5200, 1250, 200},
        {500, 700, 1500, 200},
        {750, 800, 1750, 300}}},
      {"never more than the silence",
       {{0, 0, 1000, 0}, {3000, 3000, 4000, 3000}, {6000, 6000, 1100, 1100}}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    CoreWait wait;
    for (const Look& look : row.looks) {
      EXPECT_EQ(wait.look(CoreWait::Time(milliseconds(look.now_ms)),
                          milliseconds(look.coreless_ms),
                          milliseconds(look.quiet_ms)),
                milliseconds(look.expected_ms))
          << look.now_ms;
    }
  }
}

TEST(CoreWait, ThreadsThatShareACoreWaitForIt) {
  std::atomic<bool> is_over = false;
  const auto begin = coreless_time();
  std::vector<std::thread> threads;
  for (int64_t k = 0; k < 4 * read_machine_limits().cores_of_mask; ++k) {
    threads.emplace_back([&] {
      while (!is_over) {
      }
    });
  }
  std::this_thread::sleep_for(milliseconds(500));
  const auto waited = coreless_time() - begin;
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(waited, milliseconds(200));
}

}  // namespace
}  // namespace headroom
