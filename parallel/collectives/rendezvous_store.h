// RendezvousStore: a KeyValueStore as the c10d::Store that Gloo connects
// through.
//
// Threads: as the KeyValueStore.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "parallel/base/key_value_store.h"

namespace headroom::collectives {

class RendezvousStore final : public c10d::Store {
 public:
  // Keys are put below `prefix`; waiting for one takes at most `timeout`.
  RendezvousStore(std::shared_ptr<KeyValueStore> store, std::string prefix,
                  std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

  // Gloo connects without these: c10::NotImplementedError.
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;

 private:
  std::shared_ptr<KeyValueStore> store_;
  const std::string prefix_;
};

}  // namespace headroom::collectives
