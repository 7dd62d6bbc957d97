// Runs ranks as forked processes that communicate over Gloo, for measurements
// of times and counts that belong to a whole process.
#pragma once

#include <filesystem>
#include <functional>

#include "parallel/collectives/communicator.h"

namespace headroom {

// Forks the ranks, each with one compute thread and the counting allocator,
// waits for them and returns the largest of their exit codes. The ranks find
// each other through `folder`, which this function creates and then removes. If
// `main` throws, the exception is printed and the rank's exit code is 1.
// REQUIRES: LibTorch has not started a thread yet.
int run_forked_ranks(
    int num_ranks, const std::filesystem::path& folder,
    const std::function<int(collectives::Communicator& world)>& main);

}  // namespace headroom
