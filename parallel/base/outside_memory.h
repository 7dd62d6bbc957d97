// OutsideMemory: memory of tensors that does not come from the tensors'
// allocator, and counts all the same.
//
// Whoever counts tensors' bytes in this process installs a counter, before
// there are other threads; whoever provides such memory asks for a token and
// keeps it as long as the memory. Without a counter a token is empty.
#pragma once

#include <cstdint>
#include <memory>

namespace headroom {

class OutsideMemory {
 public:
  // The bytes count until the token is gone. May throw what an allocator
  // throws when there is no room.
  using Counter = std::shared_ptr<void> (*)(int64_t bytes);

  static void set_counter(Counter counter) { installed() = counter; }
  static std::shared_ptr<void> count(int64_t bytes) {
    return installed() == nullptr ? nullptr : installed()(bytes);
  }

 private:
  static Counter& installed() {
    static Counter counter = nullptr;
    return counter;
  }
};

}  // namespace headroom
