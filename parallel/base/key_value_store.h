// KeyValueStore: how the ranks of one generation find each other.
//
// A communicator publishes its address under a key and waits for the keys of
// its peers. In a run the coordinator holds the map (one per generation, so a
// stale key is never read); in unit tests it is a map in this process.
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

  // Overwrites. Throws CommunicationError when the store cannot be reached.
  virtual void set(const std::string& key, const std::string& value) = 0;

  // Waits until `key` is there. Throws CommunicationError after `timeout`,
  // naming the key.
  virtual std::string get(const std::string& key,
                          std::chrono::milliseconds timeout) = 0;

  // Likewise the values of `prefix` with 0, 1, ... `count` - 1 behind it.
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
