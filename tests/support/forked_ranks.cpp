#include "tests/support/forked_ranks.h"

#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/collectives/backend.h"
#include "tests/support/folder_store.h"

namespace headroom {
namespace {

int rank_main(
    int rank, int num_ranks, const std::filesystem::path& folder,
    const std::function<int(collectives::Communicator& world)>& main) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  at::set_num_threads(1);
  try {
    const auto store = std::make_shared<FolderStore>(folder);
    const auto world = collectives::make_communicator(
        plan::Backend::kGloo, store, "forked_ranks", rank, num_ranks);
    return main(*world);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

}  // namespace

int run_forked_ranks(
    int num_ranks, const std::filesystem::path& folder,
    const std::function<int(collectives::Communicator& world)>& main) {
  std::filesystem::create_directories(folder);
  std::vector<pid_t> children;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) _exit(rank_main(rank, num_ranks, folder, main));
    children.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  std::filesystem::remove_all(folder);
  return worst;
}

}  // namespace headroom
