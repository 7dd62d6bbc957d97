// StateCopy: the state between two steps, copied while the next one runs.
//
// A state changes at its commit alone, so until then a thread that gets what
// the others leave can copy it, piece by piece. Whoever is about to change the
// state does the rest (TrainingState::before_change).
//
// Ownership: shares the memory of both sides until its end.
// Threads: any number at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <vector>

#include "worker/checkpoint/host_state_snapshot.h"

namespace headroom::checkpoint {

class StateCopy {
 public:
  // REQUIRES: `to` has the parts of `from`, in memory of their sizes.
  StateCopy(const HostStateSnapshot& from, const HostStateSnapshot& to);

  // Copies a piece; false: none was left.
  bool advance();
  // Returns once all is copied, by whomever.
  void finish();

 private:
  struct Piece {
    at::Tensor from, to;
  };

  std::vector<Piece> pieces_;
  std::atomic<size_t> next_ = 0;
  std::atomic<size_t> num_copied_ = 0;
};

}  // namespace headroom::checkpoint
