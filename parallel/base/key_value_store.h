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
};

}  // namespace headroom
