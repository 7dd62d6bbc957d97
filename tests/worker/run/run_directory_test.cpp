#include "worker/run/run_directory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "parallel/base/check.h"
#include "tests/worker/data/data_files.h"

namespace headroom::run {
namespace {

using std::chrono::milliseconds;

// A rank 0 that was killed holds the folder until its process has ended.
TEST(RunDirectory, IsWaitedForUntilTheGivenTimeout) {
  const TemporaryFolder folder;
  std::optional<RunDirectory> killed(folder.path() / "exp");
  killed->create(/*may_exist=*/false, /*needed_bytes=*/0);
  RunDirectory refused(folder.path() / "exp");
  EXPECT_THROW(refused.create(/*may_exist=*/true, 0), Error);
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(300));
    killed.reset();
  });
  RunDirectory next(folder.path() / "exp");
  EXPECT_NO_THROW(next.create(/*may_exist=*/true, 0, milliseconds(20'000)));
  ends.join();
}

}  // namespace
}  // namespace headroom::run
