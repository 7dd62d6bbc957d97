// Ranks as processes of one program, over Gloo: for times and counts that are
// per process.
#pragma once

#include <filesystem>
#include <functional>

#include "parallel/collectives/communicator.h"

namespace headroom {

// Forks the ranks, each with one compute thread and the counting allocator, and
// waits for them; returns the worst of their exit codes. `folder`, where they
// find each other, exists meanwhile. An exception of `main` is printed and
// counts as 1. REQUIRES: LibTorch has not started a thread yet.
int run_forked_ranks(
    int num_ranks, const std::filesystem::path& folder,
    const std::function<int(collectives::Communicator& world)>& main);

}  // namespace headroom
