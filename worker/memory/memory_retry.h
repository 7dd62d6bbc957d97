// MemoryRetry: work between steps that may run out of memory, on this rank
// alone, and is tried again.
//
// For validation and files: what is in the way may be gone, and freed memory
// goes back to the system first. Work that exchanges with other ranks cannot be
// tried again by one of them.
//
// Ownership: a value. Threads: the thread that trains.
#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <new>
#include <string>
#include <utility>

#include "parallel/devices/compute_device.h"
#include "worker/memory/memory_event.h"

namespace headroom::memory {

class MemoryRetry {
 public:
  static constexpr int kAttempts = 3;

  // Without a phase nobody is told.
  MemoryRetry() = default;
  MemoryRetry(std::string phase, std::function<void(const StepEvent&)> report,
              const devices::ComputeDevice& device = {})
      : phase_(std::move(phase)), report_(std::move(report)), device_(device) {}

  // The result of `work`, which leaves nothing behind when it throws. What its
  // last attempt throws comes out. REQUIRES: no communication in it.
  template <typename Work>
  auto run(const Work& work) const {
    for (int attempt = 1;; ++attempt) {
      std::string failure;
      try {
        return work();
      } catch (const c10::OutOfMemoryError& error) {
        if (attempt == kAttempts) throw;
        failure = error.what_without_backtrace();
      } catch (const std::bad_alloc&) {
        if (attempt == kAttempts) throw;
        failure = "the host's memory is used up";
      }
      note(failure, "caches are released and it is tried again");
    }
  }

  // Tells of a failure and gives freed memory back.
  void note(const std::string& failure, const std::string& change) const;

 private:
  std::string phase_;
  std::function<void(const StepEvent&)> report_;
  devices::ComputeDevice
      device_;  // that may be short of memory, beside the host
};

}  // namespace headroom::memory
