#include "tests/support/in_memory_store.h"

#include "parallel/base/check.h"

namespace headroom {

void InMemoryStore::set(const std::string& key, const std::string& value) {
  std::lock_guard<std::mutex> lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::string InMemoryStore::get(const std::string& key,
                               std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!changed_.wait_for(lock, timeout,
                         [&] { return values_.count(key) > 0; })) {
    throw CommunicationError("nobody set '" + key + "' for " +
                             std::to_string(timeout.count()) + " ms");
  }
  return values_.at(key);
}

}  // namespace headroom
