// InMemoryStore: a KeyValueStore for ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "parallel/base/key_value_store.h"

namespace headroom {

class InMemoryStore final : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key,
                  std::chrono::milliseconds timeout) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;  // guarded by mutex_
};

}  // namespace headroom
