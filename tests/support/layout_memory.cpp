#include "tests/support/layout_memory.h"

#include <algorithm>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "tests/support/rank_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/state_bytes.h"

namespace headroom {
namespace {

template <typename Bytes>
int64_t largest(const std::vector<RankMemory>& ranks, const Bytes& bytes) {
  int64_t most = 0;
  for (const RankMemory& rank : ranks) most = std::max(most, bytes(rank));
  return most;
}

}  // namespace

int64_t LayoutMemory::peak() const {
  return largest(ranks, [](const RankMemory& rank) { return rank.peak; });
}
int64_t LayoutMemory::activations() const {
  return largest(ranks,
                 [](const RankMemory& rank) { return rank.activations(); });
}
int64_t LayoutMemory::state() const {
  return largest(ranks, [](const RankMemory& rank) { return rank.state; });
}

LayoutMemory measure_memory(configs::RunConfig config, int steps) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  config.synthetic_input = true;
  LayoutMemory result;
  result.plan = plan_of_synthetic_run(config);
  const int world_size = result.plan.layout.world_size();
  result.ranks.resize(static_cast<size_t>(world_size));
  RankOptions options;
  options.operation_timeout = std::chrono::seconds(300);
  options.time_limit = std::chrono::seconds(900);
  run_ranks(
      world_size,
      [&](int rank, collectives::Communicator& world) {
        activations::CountingAllocator& allocator =
            activations::CountingAllocator::instance();
        RankTraining training(config, result.plan, world);
        RankMemory& mine = result.ranks[static_cast<size_t>(rank)];
        mine.state = resident_bytes(training.state());
        mine.rest = allocator.live_bytes();
        for (int step = 0; step < steps; ++step) {
          allocator.reset_peak();
          const step::StepResult done = training.step();
          mine.peak = std::max(mine.peak, allocator.peak_bytes());
          if (rank == 0) result.loss.push_back(done.loss);
        }
      },
      options);
  return result;
}

}  // namespace headroom
