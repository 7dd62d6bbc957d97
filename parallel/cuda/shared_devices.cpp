#include "parallel/cuda/shared_devices.h"

#include <map>

#include "parallel/base/check.h"

namespace headroom::cuda {

void refuse_shared_devices(KeyValueStore& store, const std::string& prefix,
                           int rank, int size, const std::string& uuid,
                           std::chrono::milliseconds timeout) {
  const auto key = [&](int of) {
    return prefix + "/device/" + std::to_string(of);
  };
  store.set(key(rank), uuid);
  std::map<std::string, int> owners;
  for (int other = 0; other < size; ++other) {
    const std::string theirs = store.get(key(other), timeout);
    const auto [owner, is_first] = owners.emplace(theirs, other);
    if (is_first) continue;
    throw Error("nccl",
                "ranks " + std::to_string(owner->second) + " and " +
                    std::to_string(other) + " are both on " + theirs,
                "start one process per device");
  }
}

}  // namespace headroom::cuda
