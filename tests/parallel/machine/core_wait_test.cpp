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
    int64_t coreless_ms, quiet_ms, expected_ms;
  };
  const struct {
    const char* name;
    std::vector<Look> looks;
  } rows[] = {
      {"no wait", {{500, 1000, 0}, {500, 1250, 0}}},
      {"the waits before the first look do not count",
       {{9000, 1000, 0}, {9100, 1250, 100}, {9300, 1500, 300}}},
      {"a long wait appears when it ends",
       {{0, 1000, 0}, {0, 1250, 0}, {2900, 4000, 2900}}},
      {"threads that wait at once make the silence no longer",
       {{0, 1000, 0}, {9000, 1250, 1250}, {18000, 1500, 1500}}},
      {"the waits of one silence are not those of the next",
       {{0, 1000, 0}, {900, 1900, 900}, {950, 1100, 0}, {970, 1350, 20}}},
      {"a thread that ends takes nothing away",
       {{5000, 1000, 0},
        {5200, 1250, 200},
        {700, 1500, 200},
        {800, 1750, 300}}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    CoreWait wait;
    for (const Look& look : row.looks) {
      EXPECT_EQ(wait.look(milliseconds(look.coreless_ms),
                          milliseconds(look.quiet_ms)),
                milliseconds(look.expected_ms))
          << look.quiet_ms;
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
