#include "parallel/cuda/shared_devices.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "parallel/base/check.h"
#include "tests/support/in_memory_store.h"

namespace headroom::cuda {
namespace {

// What each rank says; "" where it goes on.
std::vector<std::string> answers(const std::vector<std::string>& uuids,
                                 int missing = -1) {
  InMemoryStore store;
  const int size = static_cast<int>(uuids.size());
  std::vector<std::string> said(uuids.size());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == missing) continue;
    ranks.emplace_back([&, rank] {
      try {
        refuse_shared_devices(
            store, "generation 1", rank, size, uuids[static_cast<size_t>(rank)],
            std::chrono::milliseconds(missing < 0 ? 5000 : 50));
      } catch (const Error& error) {
        said[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return said;
}

TEST(SharedDevices, ADeviceEachIsFine) {
  EXPECT_EQ(answers({"GPU-a", "GPU-b", "GPU-c"}),
            (std::vector<std::string>{"", "", ""}));
}

TEST(SharedDevices, EveryRankRefusesTheSamePair) {
  const std::string refusal =
      "[nccl] ranks 0 and 2 are both on GPU-a: start one process per device";
  EXPECT_EQ(answers({"GPU-a", "GPU-b", "GPU-a"}),
            (std::vector<std::string>{refusal, refusal, refusal}));
}

TEST(SharedDevices, ASilentRankIsALostPeer) {
  const auto said = answers({"GPU-a", "GPU-b"}, 1);
  EXPECT_NE(said[0].find("generation 1/device/1"), std::string::npos)
      << said[0];
}

}  // namespace
}  // namespace headroom::cuda
