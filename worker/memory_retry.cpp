#include "worker/memory_retry.h"

#include "worker/model/kernels/heap.h"

namespace headroom {

void MemoryRetry::note(const std::string& failure,
                       const std::string& change) const {
  const auto refusal = CountingAllocator::take_refusal();
  if (report_) report_(out_of_memory_event(phase_, failure, refusal, change));
  release_freed_memory();
}

}  // namespace headroom
