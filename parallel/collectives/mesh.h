// Mesh: the ranks of a run along the axes of its layout, one communicator per
// purpose.
//
//   pipeline    the stages of one model replica and image part
//   data        the ranks that hold the same layers and image part; ZeRO splits
//               the state among them
//   spatial     the ranks that share one image; they exchange halo rows, and
//               statistics of batch-norm groups that no other data rank shares
//   replicas    all ranks that hold the same layers (data x spatial); they sum
//               gradients
//   statistics  the same ranks as `replicas`, and sets of them that share
//               batch-norm groups (sharing()), whose statistics they sum.
//               Gradient sums may start at any time in backward, so other
//               exchanges during backward need their own communicator
//
// Each communicator counts the bytes that this rank contributes, so that a test
// can verify that work is split. The mesh owns the communicators, except
// `world`.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/collectives/counting_communicator.h"
#include "parallel/plan/layout.h"

namespace headroom::collectives {

struct Mesh {
  // Collective over `world`. REQUIRES: world.size() == layout.world_size().
  Mesh(Communicator& world, const plan::ParallelLayout& layout);

  Communicator& world;
  const plan::ParallelLayout layout;
  const plan::MeshCoordinates here;
  std::unique_ptr<CountingCommunicator> pipeline;
  std::unique_ptr<CountingCommunicator> data;
  std::unique_ptr<CountingCommunicator> spatial;
  std::unique_ptr<CountingCommunicator> replicas;
  std::unique_ptr<CountingCommunicator> statistics;

  // The communicator of the data ranks that have the color of this one, with
  // all parts of their images. `colors` has a color of each data rank. Made and
  // connected when these colors are first given; reconnect() ends it.
  // Collective over `replicas`.
  CountingCommunicator& sharing(const std::vector<int>& colors);
  // Bytes of `statistics` and of all sets of sharing().
  int64_t statistics_bytes() const;

  // Disconnects all axes, but not `world`: peers fail at once instead of
  // waiting.
  void disconnect();
  // Splits `world`, which has been reconnected, into the same axes. Collective.
  void reconnect();

  bool is_first_stage() const { return here.pipeline_stage == 0; }
  bool is_last_stage() const {
    return here.pipeline_stage == layout.pipeline_parallel_size - 1;
  }

  enum class Axis { kPipeline, kData, kSpatial, kReplicas };

 private:
  // The axes and their communicators, in the order in which all ranks create
  // them.
  std::array<std::pair<Axis, std::unique_ptr<CountingCommunicator>*>, 5> axes();
  std::unique_ptr<Communicator> split(Axis axis) const;
  void connect();

  // By the colors of the data ranks.
  std::map<std::vector<int>, std::unique_ptr<CountingCommunicator>> sharing_;
};

}  // namespace headroom::collectives
