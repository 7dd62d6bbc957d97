// NcclFamily: the communicators of one generation: one of all ranks, and what
// was split off. The first failure of one is the end of all, and whoever learns
// that a peer is lost ends them (abort_all), also while they connect.
//
// Threads: any.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace headroom::cuda {

class NcclFamily {
 public:
  static std::shared_ptr<NcclFamily> make();

  // The first reason stays. `is_full`: the device had no memory for NCCL.
  void fail(const std::string& reason, bool is_full = false);
  bool has_failed() const { return has_failed_; }
  // Throws CommunicationError, or Error (exit 5) where the device is full.
  [[noreturn]] void throw_failure(int rank, int size) const;

  // Ends all that live in this process.
  static void abort_all(const std::string& reason);

 private:
  NcclFamily() = default;

  mutable std::mutex mutex_;
  std::string reason_;    // guarded
  bool is_full_ = false;  // guarded
  std::atomic<bool> has_failed_{false};
};

}  // namespace headroom::cuda
