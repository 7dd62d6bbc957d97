// run_ranks: a distributed program as threads of one test.
//
// Each rank runs `body` in its own thread with its own communicator, one
// compute thread and, if CountingAllocator is installed, its own memory
// account. A rank that throws drops its communicator, so that its peers fail
// instead of waiting. When all ranks have ended, one error is rethrown: that of
// the lowest rank whose error is no CommunicationError, since it names the
// cause, or else that of the lowest rank. If a rank does not end within
// `time_limit`, the test program ends with a message, because a thread cannot
// be cancelled.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/collectives/communicator.h"

namespace headroom {

enum class RankBackend {
  kLocal,
  kNetwork,
  kLazyNetwork,
  kSharedMemory,
  kMachines  // sockets; ranks of a machine share memory (RankOptions)
};

// Used in the names of parameterised tests.
std::string to_string(RankBackend backend);

struct RankOptions {
  RankBackend backend = RankBackend::kLocal;
  // For kMachines: each rank's machine. Ranks that are not listed are on
  // machine 0 if they are even and on machine 1 if they are odd.
  std::vector<int> machine_of_rank = {};
  std::chrono::milliseconds operation_timeout = std::chrono::seconds(20);
  std::chrono::milliseconds time_limit = std::chrono::seconds(90);
};

// Successive communicators for ranks that are threads. After a failure every
// rank leaves its communicator, waits here for the others and gets a new one.
class RankGenerations {
 public:
  RankGenerations(int size, const RankOptions& options = {});
  ~RankGenerations();
  // Each rank calls this from its own thread, every time after it has dropped
  // its previous communicator. Waits for all ranks.
  std::unique_ptr<collectives::Communicator> next(int rank);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

void run_ranks(
    int size,
    const std::function<void(int rank, collectives::Communicator&)>& body,
    const RankOptions& options = {});

}  // namespace headroom
