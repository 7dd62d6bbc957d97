#include "parallel/cuda/shared_devices.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <map>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/collectives/gather.h"

namespace headroom::cuda {

void refuse_shared_devices(collectives::Communicator& ranks,
                           const std::string& uuid) {
  // A name is stored as integers, so that the names of all ranks are exchanged
  // in one gather.
  using Name = std::array<int64_t, 16>;
  HEADROOM_CHECK(uuid.size() < sizeof(Name), uuid);
  Name mine{};
  std::memcpy(mine.data(), uuid.data(), uuid.size());
  std::map<std::string, int> owners;
  int rank = 0;
  for (const Name& name : collectives::tell_all(ranks, mine)) {
    const std::string theirs = reinterpret_cast<const char*>(name.data());
    const auto [owner, is_first] = owners.emplace(theirs, rank);
    if (!is_first) {
      throw Error(
          "nccl",
          cat("ranks ", owner->second, " and ", rank, " are both on ", theirs),
          "start one process per device");
    }
    ++rank;
  }
}

}  // namespace headroom::cuda
