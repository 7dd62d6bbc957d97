#include "coordinator/run/membership.h"

#include <gtest/gtest.h>

namespace headroom::coordinator {
namespace {

// A worker in step 3.
wire::RunProgress silent(int64_t quiet_ms, int64_t core_wait_ms,
                         int64_t median_step_ms = 20) {
  wire::RunProgress progress;
  progress.step = 3;
  progress.quiet_ms = quiet_ms;
  progress.core_wait_ms = core_wait_ms;
  progress.median_step_ms = median_step_ms;
  return progress;
}

TEST(Stall, TenSecondsOrFiveMediansWhicheverIsLonger) {
  EXPECT_EQ(stall_error(silent(10'000, 0)), std::nullopt);
  EXPECT_EQ(stall_error(silent(10'001, 0)),
            "was stuck in step 3: no sign of life for 10001 ms while it waited "
            "for nobody");
  EXPECT_EQ(stall_error(silent(20'000, 0, 4'000)), std::nullopt);
  EXPECT_NE(stall_error(silent(20'001, 0, 4'000)), std::nullopt);
}

TEST(Stall, TheTimeWithoutACoreDoesNotCountUpToTenMinutes) {
  constexpr int64_t kMinute = 60'000;
  const struct {
    int64_t quiet_ms, core_wait_ms, median_step_ms;
    bool is_stuck, is_reported;
  } rows[] = {
      {10'000, 0, 20, false, false},
      {10'000, 9'000, 20, false, false},
      {10'001, 0, 20, true, false},
      {10'123, 9'000, 20, false, true},   // an overloaded machine
      {10'123, 123, 20, false, false},    // just within the limit
      {10'123, 122, 20, true, false},     // just beyond it
      {11'200, 1'100, 20, true, false},   // stuck on a busy machine
      {19'000, 9'001, 20, false, false},  // waited for nearly half
      {25'000, 6'000, 4'000, false, false},
      {27'000, 6'000, 4'000, true, false},
      {5 * kMinute, 5 * kMinute - 10'000, 20, false, true},
      {10 * kMinute + 10'000, 10 * kMinute + 10'000, 20, false, true},
      {10 * kMinute + 10'001, 10 * kMinute + 10'001, 20, true, false},
      {10'001, -5, 20, true, false},
  };
  for (const auto& row : rows) {
    const wire::RunProgress progress =
        silent(row.quiet_ms, row.core_wait_ms, row.median_step_ms);
    EXPECT_EQ(stall_error(progress).has_value(), row.is_stuck)
        << row.quiet_ms << " " << row.core_wait_ms;
    EXPECT_EQ(overload_text(progress).has_value(), row.is_reported)
        << row.quiet_ms << " " << row.core_wait_ms;
  }
}

TEST(Stall, TheMessagesNameTheTimeWithoutACore) {
  EXPECT_EQ(overload_text(silent(10'123, 8'200)),
            "got no processor core for 8.2 of 10.1 s: this machine is "
            "overloaded. The rank is slow, not stuck; end other programs "
            "there, or use fewer processes or threads");
  EXPECT_EQ(stall_error(silent(20'001, 10'000)),
            "was stuck in step 3: no sign of life for 20001 ms, of which 10000 "
            "ms without a processor core, while it waited for nobody");
}

}  // namespace
}  // namespace headroom::coordinator
