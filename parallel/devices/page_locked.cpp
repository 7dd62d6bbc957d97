#include "parallel/devices/page_locked.h"

#include <map>
#include <mutex>
#include <utility>

namespace headroom::devices {

struct PageLockedBuffers::State {
  explicit State(DeviceApi& given) : api(given) {}

  DeviceApi& api;
  std::mutex mutex;
  std::multimap<int64_t, std::shared_ptr<void>> free;  // guarded, by size
  int64_t locked = 0;                                  // guarded
};

PageLockedBuffers::PageLockedBuffers(DeviceApi& api)
    : state_(std::make_shared<State>(api)) {}

std::shared_ptr<void> PageLockedBuffers::take(int64_t bytes) {
  State& state = *state_;
  std::shared_ptr<void> buffer;
  std::shared_ptr<void> too_small;  // goes without the lock: that takes time
  int64_t size = bytes;
  {
    const std::lock_guard lock(state.mutex);
    auto found = state.free.lower_bound(bytes);
    if (found == state.free.end() && !state.free.empty()) {
      // None is large enough: a larger one takes the place of the largest.
      found = std::prev(state.free.end());
    }
    if (found != state.free.end()) {
      if (found->first >= bytes) {
        size = found->first;
        buffer = std::move(found->second);
      } else {
        state.locked -= found->first;
        too_small = std::move(found->second);
      }
      state.free.erase(found);
    }
  }
  too_small.reset();
  if (buffer == nullptr) {
    buffer = state.api.lock_pages(bytes);
    const std::lock_guard lock(state.mutex);
    state.locked += size;
  }
  void* const address = buffer.get();
  return {address,
          [size, kept = state_, held = std::move(buffer)](void*) mutable {
            const std::lock_guard lock(kept->mutex);
            kept->free.emplace(size, std::move(held));
          }};
}

int64_t PageLockedBuffers::locked_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->locked;
}

}  // namespace headroom::devices
