// KeyValueStore: how the ranks of one generation find each other.
//
// A communicator publishes its address under a key and waits for its peers'
// keys. In a run the coordinator stores one map for each generation, so a key
// of an older generation is never read. In unit tests the map is in this
// process.
//
// Threads: implementations are safe from any thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "parallel/base/text.h"

namespace headroom {

class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;

  // Replaces the value of an existing key. Throws CommunicationError if the
  // store cannot be reached.
  virtual void set(const std::string& key, const std::string& value) = 0;

  // Waits until `key` exists. Throws CommunicationError after `timeout`.
  virtual std::string get(const std::string& key,
                          std::chrono::milliseconds timeout) = 0;

  // Returns the values of prefix + "0" ... prefix + (count - 1). Waits up to
  // `timeout` for each value, one after the other.
  virtual std::vector<std::string> get_all(const std::string& prefix, int count,
                                           std::chrono::milliseconds timeout) {
    std::vector<std::string> values;
    for (int i = 0; i < count; ++i) {
      values.push_back(get(cat(prefix, i), timeout));
    }
    return values;
  }
};

}  // namespace headroom
