#include "tests/support/test_device/page_locks.h"

#include <iterator>
#include <map>
#include <mutex>

namespace headroom {
namespace {

struct Locks {
  std::mutex mutex;
  std::map<uintptr_t, int64_t> bytes;  // key: address; guarded by mutex
};

Locks& locks() {
  static auto* const all = new Locks;
  return *all;
}

uintptr_t number_of(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

}  // namespace

std::shared_ptr<void> lock_test_pages(int64_t bytes) {
  auto* const memory = new std::byte[static_cast<size_t>(bytes)];
  {
    const std::lock_guard lock(locks().mutex);
    locks().bytes[number_of(memory)] = bytes;
  }
  return {memory, [](std::byte* held) {
            const std::lock_guard lock(locks().mutex);
            locks().bytes.erase(number_of(held));
            delete[] held;
          }};
}

bool is_page_locked(const void* address) {
  const std::lock_guard lock(locks().mutex);
  const auto after = locks().bytes.upper_bound(number_of(address));
  if (after == locks().bytes.begin()) return false;
  const auto found = std::prev(after);
  return number_of(address) <
         found->first + static_cast<uintptr_t>(found->second);
}

}  // namespace headroom
