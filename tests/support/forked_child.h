// ForkedChild: a function of a test that runs in a process of its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "parallel/base/check.h"

namespace headroom::testing {

class ForkedChild {
 public:
  // `work` returns the exit code. It must not use gtest's assertions, whose
  // failures the parent would not see.
  explicit ForkedChild(const std::function<int()>& work) : pid_(fork()) {
    HEADROOM_CHECK(pid_ >= 0, "fork() failed");
    if (pid_ != 0) return;
    int code = 100;
    try {
      code = work();
    } catch (...) {
    }
    _exit(code);
  }
  ~ForkedChild() {
    if (pid_ > 0) kill();
  }
  ForkedChild(const ForkedChild&) = delete;
  ForkedChild& operator=(const ForkedChild&) = delete;

  // Waits for the end; returns the exit code, or minus the signal's number.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  int kill() {
    ::kill(pid_, SIGKILL);
    return wait();
  }

 private:
  pid_t pid_;
};

}  // namespace headroom::testing
