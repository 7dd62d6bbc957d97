#include "worker/kernels/cpu/heap.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

namespace headroom::kernels {
namespace {

long page_faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void use_and_free_memory() {
  constexpr size_t kBytes = size_t{48} << 20;
  void* block = std::malloc(kBytes);
  ASSERT_NE(block, nullptr);
  std::memset(block, 1, kBytes);
  std::free(block);
}

TEST(Heap, FreedMemoryIsUsedAgain) {
  if (!keep_freed_memory()) GTEST_SKIP() << "this malloc has no settings";
  use_and_free_memory();
  const long before = page_faults();
  for (int i = 0; i < 4; ++i) use_and_free_memory();
  std::thread(use_and_free_memory).join();
  // Without reuse each round would have 12,288 page faults.
  EXPECT_LT(page_faults() - before, 1000);
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Runs in a process of its own, because the settings cannot be undone. Every
// second block is freed, which leaves gaps.
TEST(Heap, ReturnedMemoryLeavesNoGaps) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        if (!return_freed_memory()) std::_Exit(0);
        constexpr int64_t kBlock = int64_t{4} << 20;
        std::vector<void*> blocks;
        for (int i = 0; i < 32; ++i) {
          blocks.push_back(std::malloc(kBlock));
          std::memset(blocks.back(), 1, kBlock);
        }
        const int64_t before = resident_bytes();
        for (size_t i = 0; i < blocks.size(); i += 2) std::free(blocks[i]);
        std::_Exit(before - resident_bytes() > 15 * kBlock ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headroom::kernels
