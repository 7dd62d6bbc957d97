// run_ranks: a distributed program as threads of one test.
//
// Each rank runs `body` with its own communicator in its own thread, with one
// compute thread and, where CountingAllocator is installed, its own account. A
// rank that throws drops its communicator, so that its peers fail instead of
// waiting; when all have ended the error of the lowest rank is rethrown, one
// that is no CommunicationError first, since that is the cause. A rank that
// does not end within `time_limit` ends the test program with a message: a
// thread cannot be cancelled.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "parallel/collectives/communicator.h"

namespace headroom {

enum class RankBackend { kLocal, kNetwork, kLazyNetwork, kSharedMemory };

// For the names of parameterised tests.
std::string to_string(RankBackend backend);

struct RankOptions {
  RankBackend backend = RankBackend::kLocal;
  std::chrono::milliseconds operation_timeout = std::chrono::seconds(20);
  std::chrono::milliseconds time_limit = std::chrono::seconds(90);
};

// The generations of ranks that are threads: after a failure all of them leave
// their communicator, wait for each other here, and get a new one.
class RankGenerations {
 public:
  RankGenerations(int size, const RankOptions& options = {});
  ~RankGenerations();
  // Every rank calls it from its thread, each time after it has dropped the
  // previous communicator. Waits for all.
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
