// Ranks as processes of a program of its own, over Gloo: for what is timed, or
// counted, per process.
#pragma once

#include <filesystem>
#include <functional>

#include "parallel/collectives/communicator.h"

namespace headroom {

// Forks the ranks, each with one compute thread and the allocator that counts,
// and waits for them; the worst of their exit codes. `folder`, where they meet,
// is there meanwhile. What `main` throws is printed and counts as 1.
// REQUIRES: LibTorch has not started a thread yet.
int run_forked_ranks(
    int num_ranks, const std::filesystem::path& folder,
    const std::function<int(collectives::Communicator& world)>& main);

}  // namespace headroom
