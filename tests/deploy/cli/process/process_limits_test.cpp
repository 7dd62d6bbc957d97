#include "deploy/cli/process/process_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "parallel/base/check.h"
#include "tests/support/refusal.h"

namespace headroom::testing {
namespace {

using cli::RunThreads;

// Runs in a separate process, so that the limits that a test has lowered do not
// apply to the other tests.
[[noreturn]] void say_refusal(const std::function<void()>& check) {
  std::string said = refusal_of(check, ExitCode::kResource);
  std::fprintf(stderr, "%s\n", said.c_str());
  std::_Exit(said == "accepted" ? 0 : 5);
}

void allow(int resource, rlim_t most) {
  const rlimit limit{most, most};
  if (setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) {
    std::_Exit(1);
  }
}

TEST(ProcessLimits, ARunsThreadsGrowWithWorkersAndTheirThreads) {
  const RunThreads one{.workers = 1,
                       .threads = 2,
                       .loader_threads = 8,
                       .cores = 2,
                       .cores_of_mask = 2};
  EXPECT_EQ(one.total(), 3 * 12 + 4 + 12 + 2 + 16 + 3);
  RunThreads four = one;
  four.workers = 4;
  four.cores = 64;
  four.cores_of_mask = 64;
  EXPECT_EQ(four.total(), 3 * 24 + 4 * (16 + 12 + 2 + 16 + 65))
      << "a team of CrowdWatch has one thread more than the other cores";
}

TEST(ProcessLimits, EnoughThreadsAreAccepted) {
  EXPECT_EQ(refusal_of([] { cli::require_threads({}); }), "accepted");
}

// Root has no limit, so the test runs as another user.
TEST(ProcessLimits, TooFewThreadsAreRefusedWithBothNumbersAndTheRemedy) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        allow(RLIMIT_NPROC, 21);
        if (setuid(61'235) != 0) std::_Exit(1);
        say_refusal([] { cli::require_threads({.workers = 1, .cores = 2}); });
      },
      ::testing::ExitedWithCode(5),
      "\\[launch\\] a run takes up to 69 threads here, and the system allows "
      "20 more \\(Resource temporarily unavailable; ulimit -u is 21.*"
      "ulimit -u 138");
}

TEST(ProcessLimits, AnAddressSpaceBelowTheLibrariesIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        allow(RLIMIT_AS, rlim_t{512} << 20);
        say_refusal([] { cli::require_address_space(); });
      },
      ::testing::ExitedWithCode(5),
      "\\[launch\\] each process may have 512 MiB of address space "
      "\\(ulimit -v\\), and a worker takes at least 768 MiB");
  EXPECT_EQ(refusal_of([] { cli::require_address_space(); }), "accepted");
}

TEST(ProcessLimits, TooFewDescriptorsAreRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        allow(RLIMIT_NOFILE, 20);
        say_refusal([] { cli::require_descriptors(); });
      },
      ::testing::ExitedWithCode(5),
      "may open 20 files at once, and a run takes at least 32 descriptors");
}

}  // namespace
}  // namespace headroom::testing
