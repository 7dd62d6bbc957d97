// DescriptorLimit: while it lives, this process can open only `more` further
// files, which makes a chosen call fail with EMFILE, also for root.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace headroom {

class DescriptorLimit {
 public:
  explicit DescriptorLimit(int more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    // dup() returns the lowest free descriptor, which is the next one to be
    // used.
    const int next = ::dup(STDIN_FILENO);
    ::close(next);
    const rlimit limit{static_cast<rlim_t>(next + more), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace headroom
