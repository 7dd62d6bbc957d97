#include "parallel/collectives/mesh.h"

#include <string>

#include "parallel/base/check.h"

namespace headroom::collectives {
namespace {

// The ranks that agree with this one in everything but the axes that `vary`
// sets to zero, in rank order.
template <typename Vary>
std::unique_ptr<CountingCommunicator> along(Communicator& world,
                                            const plan::ParallelLayout& layout,
                                            plan::MeshCoordinates here,
                                            const Vary& vary) {
  vary(here);
  return std::make_unique<CountingCommunicator>(
      world.split(plan::rank_of(layout, here), world.rank()));
}

}  // namespace

Mesh::Mesh(Communicator& all, const plan::ParallelLayout& of_ranks)
    : world(all),
      layout(of_ranks),
      here(plan::coordinates_of(layout, all.rank())) {
  HEADROOM_CHECK(world.size() == layout.world_size(),
                 plan::to_string(layout) + " has " +
                     std::to_string(layout.world_size()) + " ranks, not " +
                     std::to_string(world.size()));
  const auto vary_replica = [](plan::MeshCoordinates& at) {
    at.data_parallel_rank = 0;
    at.spatial_rank = 0;
  };
  pipeline = along(world, layout, here,
                   [](plan::MeshCoordinates& at) { at.pipeline_stage = 0; });
  data = along(world, layout, here,
               [](plan::MeshCoordinates& at) { at.data_parallel_rank = 0; });
  spatial = along(world, layout, here,
                  [](plan::MeshCoordinates& at) { at.spatial_rank = 0; });
  replicas = along(world, layout, here, vary_replica);
  statistics = along(world, layout, here, vary_replica);
  // Gradients go over the first, an image's batch-norm sums over the second;
  // the others may carry no tensor of a device.
  replicas->connect();
  spatial->connect();
}

void Mesh::disconnect() {
  for (auto* axis : {&pipeline, &data, &spatial, &replicas, &statistics}) {
    (*axis)->disconnect();
  }
}

}  // namespace headroom::collectives
