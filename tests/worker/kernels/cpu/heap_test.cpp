#include "worker/kernels/cpu/heap.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <thread>

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

}  // namespace
}  // namespace headroom::kernels
