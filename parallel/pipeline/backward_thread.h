// BackwardOnThisThread: where autograd runs a backward.
//
// LibTorch gives each device a thread of its own for it. Ours runs on the
// caller's, as on the CPU: scopes of the thread (memory categories, policies,
// the stream) hold there, and ranks that are threads do not wait for each
// other.
//
// Threads: of the one that makes it, as long as it lives.
#pragma once

#include <c10/core/AutogradState.h>

namespace headroom::pipeline {

class BackwardOnThisThread {
 public:
  explicit BackwardOnThisThread(bool is_cpu)
      : state_(c10::AutogradState::get_tls_state()),
        before_(state_.get_multithreading_enabled()) {
    if (!is_cpu) state_.set_multithreading_enabled(false);
  }
  ~BackwardOnThisThread() { state_.set_multithreading_enabled(before_); }
  BackwardOnThisThread(const BackwardOnThisThread&) = delete;
  BackwardOnThisThread& operator=(const BackwardOnThisThread&) = delete;

 private:
  c10::AutogradState& state_;
  const bool before_;
};

}  // namespace headroom::pipeline
