// BackwardOnThisThread: while it lives, backwards of the thread that made it
// run on that thread. LibTorch would give each device a thread of its own; but
// scopes of the thread (memory categories, policies, the stream) hold only
// here, and ranks that are threads must not wait for each other.
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
