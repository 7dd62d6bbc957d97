#include "worker/memory_retry.h"

#include "worker/model/kernels/heap.h"

namespace headroom {

void MemoryRetry::note(const std::string& failure,
                       const std::string& change) const {
  auto refusal = device_.memory().take_last_refusal();
  if (!refusal) refusal = CountingAllocator::take_refusal();
  if (report_) report_(out_of_memory_event(phase_, failure, refusal, change));
  release_freed_memory();
  device_.memory().release_caches();
}

}  // namespace headroom
