// parallel_for: independent work items on a few threads of its own. It is for
// start-up work such as reading headers; the loader has its own threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace headroom {

// Calls body(i) for each i in [0, count), in any order, on `num_threads`
// threads (the caller's is one of them). Rethrows the first exception after all
// threads have ended.
template <typename Body>
void parallel_for(int64_t count, int64_t num_threads, const Body& body) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (int64_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  std::vector<std::jthread> threads;
  const int64_t helpers = std::min(num_threads, count) - 1;
  for (int64_t i = 0; i < helpers; ++i) threads.emplace_back(work);
  work();
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace headroom
