#include "worker/memory/memory_retry.h"

#include "worker/kernels/cpu/heap.h"

namespace headroom::memory {

void MemoryRetry::note(const std::string& failure,
                       const std::string& change) const {
  auto refusal = device_.memory().take_last_refusal();
  if (!refusal) refusal = activations::CountingAllocator::take_refusal();
  if (report_) report_(out_of_memory_event(phase_, failure, refusal, change));
  kernels::release_freed_memory();
  device_.memory().release_caches();
}

}  // namespace headroom::memory
