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
    // The lowest free number is the next one that is given.
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
