#include "parallel/collectives/mesh.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/collectives/backend.h"
#include "parallel/collectives/device_ranks.h"

namespace headroom::collectives {
namespace {

// The color of a rank's group: equal for ranks that differ only along `axis`.
int color_of(Mesh::Axis axis, const plan::ParallelLayout& layout,
             plan::MeshCoordinates here) {
  switch (axis) {
    case Mesh::Axis::kPipeline:
      here.pipeline_stage = 0;
      break;
    case Mesh::Axis::kData:
      here.data_parallel_rank = 0;
      break;
    case Mesh::Axis::kSpatial:
      here.spatial_rank = 0;
      break;
    case Mesh::Axis::kReplicas:
      here.data_parallel_rank = 0;
      here.spatial_rank = 0;
      break;
  }
  return plan::rank_of(layout, here);
}

int size_of(Mesh::Axis axis, const plan::ParallelLayout& layout) {
  switch (axis) {
    case Mesh::Axis::kPipeline:
      return layout.pipeline_parallel_size;
    case Mesh::Axis::kData:
      return layout.data_parallel_size;
    case Mesh::Axis::kSpatial:
      return layout.spatial_parallel_size;
    case Mesh::Axis::kReplicas:
      return layout.data_parallel_size * layout.spatial_parallel_size;
  }
  return 1;
}

// Connects the messages of an axis directly between devices, unless they would
// take more streams of a card than it has queues: then they go through the
// hosts.
void connect_messages(const plan::ParallelLayout& layout, Communicator& axis) {
  const int directions = 2 * (layout.pipeline_parallel_size - 1 +
                              layout.spatial_parallel_size - 1);
  if (directions <= kMostMessageStreams) axis.connect_messages();
}

}  // namespace

Mesh::Mesh(Communicator& all, const plan::ParallelLayout& of_ranks)
    : world(all),
      layout(of_ranks),
      here(plan::coordinates_of(layout, all.rank())) {
  HEADROOM_CHECK(world.size() == layout.world_size(),
                 cat(plan::to_string(layout), " has ", layout.world_size(),
                     " ranks, not ", world.size()));
  for (const auto& [axis, communicator] : axes()) {
    *communicator = std::make_unique<CountingCommunicator>(split(axis));
  }
  connect();
}

// Connects the axes that are certain to exchange device tensors: `replicas`
// (gradients), `spatial` (batch-norm sums of an image and its rows) and
// `pipeline` (maps).
void Mesh::connect() {
  replicas->connect();
  spatial->connect();
  connect_messages(layout, *spatial);
  connect_messages(layout, *pipeline);
}

// A rank that is alone on an axis needs no connection.
std::unique_ptr<Communicator> Mesh::split(Axis axis) const {
  const int size = size_of(axis, layout);
  auto ranks = size == 1
                   ? make_device_host_communicator(make_single_communicator(),
                                                   /*devices=*/nullptr)
                   : world.split(color_of(axis, layout, here), world.rank());
  HEADROOM_CHECK(ranks->size() == size,
                 cat("an axis of ", size, " has ", ranks->size(), " ranks"));
  return ranks;
}

CountingCommunicator& Mesh::sharing(const std::vector<int>& colors) {
  HEADROOM_CHECK(std::ssize(colors) == layout.data_parallel_size,
                 cat(colors.size(), " colors of ", layout.data_parallel_size,
                     " data ranks"));
  const bool are_all_equal =
      std::ranges::adjacent_find(colors, std::not_equal_to()) == colors.end();
  if (are_all_equal) return *statistics;
  if (const auto known = sharing_.find(colors); known != sharing_.end()) {
    return *known->second;
  }
  auto ranks = std::make_unique<CountingCommunicator>(
      statistics->split(colors[static_cast<size_t>(here.data_parallel_rank)],
                        statistics->rank()));
  ranks->connect_for_small_sums();
  return *(sharing_[colors] = std::move(ranks));
}

int64_t Mesh::statistics_bytes() const {
  int64_t bytes = statistics->bytes();
  for (const auto& [colors, ranks] : sharing_) bytes += ranks->bytes();
  return bytes;
}

std::array<std::pair<Mesh::Axis, std::unique_ptr<CountingCommunicator>*>, 5>
Mesh::axes() {
  return {{{Axis::kPipeline, &pipeline},
           {Axis::kData, &data},
           {Axis::kSpatial, &spatial},
           {Axis::kReplicas, &replicas},
           {Axis::kReplicas, &statistics}}};
}

void Mesh::disconnect() {
  for (const auto& [axis, communicator] : axes()) {
    if (*communicator) (*communicator)->disconnect();
  }
  for (const auto& [colors, ranks] : sharing_) {
    ranks->disconnect();
  }
}

void Mesh::reconnect() {
  for (const auto& [axis, communicator] : axes()) {
    (*communicator)->reconnect(split(axis));
  }
  sharing_.clear();
  connect();
}

}  // namespace headroom::collectives
