#include "parallel/cuda/shared_devices.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/collectives/counting_communicator.h"
#include "tests/support/run_ranks.h"

namespace headroom::cuda {
namespace {

// The refusal of each rank; "" if the rank continues.
std::vector<std::string> answers(const std::vector<std::string>& uuids) {
  std::vector<std::string> said(uuids.size());
  run_ranks(static_cast<int>(uuids.size()),
            [&](int rank, collectives::Communicator& world) {
              try {
                refuse_shared_devices(world, uuids[static_cast<size_t>(rank)]);
              } catch (const Error& error) {
                said[static_cast<size_t>(rank)] = error.what();
              }
            });
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

// Each rank sends its own name once, and no further requests.
TEST(SharedDevices, ARankSendsItsOwnNameOnce) {
  run_ranks(16, [](int rank, collectives::Communicator& world) {
    collectives::CountingCommunicator counting(world.split(0, rank));
    refuse_shared_devices(counting, "GPU-" + std::to_string(rank));
    EXPECT_EQ(counting.bytes(), 128);
  });
}

}  // namespace
}  // namespace headroom::cuda
