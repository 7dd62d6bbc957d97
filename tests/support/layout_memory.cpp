#include "tests/support/layout_memory.h"

#include <algorithm>
#include <mutex>

#include "configs/model_table.h"
#include "configs/row_cost.h"
#include "coordinator/planner.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"
#include "parallel/collectives/mesh.h"
#include "tests/support/run_ranks.h"
#include "worker/data/synthetic.h"
#include "worker/parallelize.h"
#include "worker/pass_lists.h"
#include "worker/rank_context.h"
#include "worker/run_inputs.h"
#include "worker/trainer.h"

namespace headroom {
namespace {

template <typename Bytes>
int64_t largest(const std::vector<RankMemory>& ranks, const Bytes& bytes) {
  int64_t most = 0;
  for (const RankMemory& rank : ranks) most = std::max(most, bytes(rank));
  return most;
}

LoaderOptions input_options(const RunConfig& config, const Plan& plan,
                            const Mesh& mesh, const LayerGraph& model) {
  LoaderOptions options = loader_options(config, model);
  options.global_batch_size = config.global_batch_size;
  options.data_parallel_size = plan.layout.data_parallel_size;
  options.data_parallel_rank = mesh.here.data_parallel_rank;
  options.micro_batch_size = plan.micro_batch_size;
  options.batch_norm_group_size = plan.batch_norm_group_size;
  options.own_rows = own_rows(mesh, options.stride);
  return options;
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

LayoutMemory measure_memory(RunConfig config, int steps) {
  CountingAllocator::install();
  install_saved_tensor_policies();
  config.synthetic_input = true;
  const ModelTable table = load_model_table(config.cfg);
  LayoutMemory result;
  const int world_size = parse_layout(config.layout).world_size();
  result.plan = plan_or_throw(config, world_size, row_costs(table));
  const Plan& plan = result.plan;
  result.ranks.resize(static_cast<size_t>(world_size));
  std::mutex mutex;
  RankOptions rank_options;
  rank_options.operation_timeout = std::chrono::seconds(300);
  rank_options.time_limit = std::chrono::seconds(900);
  run_ranks(
      world_size,
      [&](int rank, Communicator& world) {
        CountingAllocator& allocator = CountingAllocator::instance();
        Mesh mesh(world, plan.layout);
        TrainingStateOptions options;
        options.num_classes = kSyntheticClasses;
        options.scalar_type = scalar_type_of(config.precision);
        options.optimizer = parse_optimizer(config.optimizer);
        options.zero_stage = plan.zero_stage;
        options.mesh = &mesh;
        options.rows = rows_of_stage(plan, mesh.here.pipeline_stage,
                                     static_cast<int64_t>(table.rows.size()));
        TrainingState state(table, options);
        SyntheticInput source(input_options(config, plan, mesh, state.model()));

        Trainer::Options training;
        training.schedule = {config.hyp, 10, 100, config.global_batch_size,
                             false};
        training.gains = scale_gains(
            config.hyp, static_cast<int64_t>(state.model().levels().size()),
            kSyntheticClasses,
            std::max(config.image_height, config.image_width), 0);
        training.plan = plan;
        if (mesh.replicas->size() > 1) {
          training.pass_lists =
              record_pass_lists(table, kSyntheticClasses, state.scalar_type(),
                                state.model().kept_rows(), /*freeze=*/0,
                                mesh.spatial->size() > 1);
        }
        Trainer trainer(training, state, mesh);
        RankMemory mine;
        mine.state = state.resident_bytes();
        mine.rest = allocator.live_bytes();
        for (int step = 0; step < steps; ++step) {
          allocator.reset_peak();
          const StepResult done = trainer.train_step(source.next(), false);
          HEADROOM_CHECK(done.committed, "step " + std::to_string(step));
          mine.peak = std::max(mine.peak, allocator.peak_bytes());
          if (rank == 0) result.loss.push_back(done.loss);
        }
        const std::lock_guard lock(mutex);
        result.ranks[static_cast<size_t>(rank)] = mine;
      },
      rank_options);
  return result;
}

}  // namespace headroom
