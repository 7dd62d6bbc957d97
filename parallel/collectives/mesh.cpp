#include "parallel/collectives/mesh.h"

#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"

namespace headroom::collectives {
namespace {

// The `size` ranks that agree with this one in everything but the axes that
// `vary` sets to zero, in rank order. A rank alone needs no connection.
template <typename Vary>
std::unique_ptr<CountingCommunicator> along(Communicator& world,
                                            const plan::ParallelLayout& layout,
                                            plan::MeshCoordinates here,
                                            int size, const Vary& vary) {
  vary(here);
  auto ranks = size == 1
                   ? make_device_host_communicator(make_single_communicator(),
                                                   /*devices=*/nullptr)
                   : world.split(plan::rank_of(layout, here), world.rank());
  HEADROOM_CHECK(ranks->size() == size,
                 "an axis of " + std::to_string(size) + " has " +
                     std::to_string(ranks->size()) + " ranks");
  return std::make_unique<CountingCommunicator>(std::move(ranks));
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
  const int num_replicas =
      layout.data_parallel_size * layout.spatial_parallel_size;
  pipeline = along(world, layout, here, layout.pipeline_parallel_size,
                   [](plan::MeshCoordinates& at) { at.pipeline_stage = 0; });
  data = along(world, layout, here, layout.data_parallel_size,
               [](plan::MeshCoordinates& at) { at.data_parallel_rank = 0; });
  spatial = along(world, layout, here, layout.spatial_parallel_size,
                  [](plan::MeshCoordinates& at) { at.spatial_rank = 0; });
  replicas = along(world, layout, here, num_replicas, vary_replica);
  statistics = along(world, layout, here, num_replicas, vary_replica);
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
