#include "worker/kernels/cpu/heap.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace headroom::kernels {
namespace {

constexpr uintptr_t kLargePage = uintptr_t{2} << 20;

// Grows the heap's address range and asks for large pages in it. The cost is
// paid once per page, when it is first touched. If the system refuses, small
// pages are used, which are slower.
void prefer_large_pages() {
  const size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                       static_cast<size_t>(sysconf(_SC_PAGESIZE)) / 2;
  void* block = std::malloc(bytes);
  if (block == nullptr) return;
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  const uintptr_t begin = (address + kLargePage - 1) / kLargePage * kLargePage;
  const uintptr_t end = (address + bytes) / kLargePage * kLargePage;
  if (begin < end) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
  std::free(block);
}

}  // namespace

bool keep_freed_memory() {
  // Without mmap no freed block is unmapped. All threads share one arena,
  // because every further arena would use mmap for large blocks.
  if (mallopt(M_MMAP_MAX, 0) == 0 || mallopt(M_TRIM_THRESHOLD, -1) == 0 ||
      mallopt(M_ARENA_MAX, 1) == 0) {
    return false;
  }
  prefer_large_pages();
  return true;
}

bool return_freed_memory() {
  constexpr int kMebibyte = 1 << 20;
  return mallopt(M_MMAP_THRESHOLD, kMebibyte) != 0 &&
         mallopt(M_TRIM_THRESHOLD, kMebibyte) != 0 &&
         mallopt(M_ARENA_MAX, 1) != 0;
}

void release_freed_memory() { malloc_trim(0); }

}  // namespace headroom::kernels
