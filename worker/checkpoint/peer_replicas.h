// PeerReplicas: a second home for state that one rank alone has: ZeRO's shards,
// the layers of a pipeline stage.
//
//   after each commit   a rank packs what it has and sends it to its buddy,
//                       which has until its next step to take it in
//   two versions        of its own and of whom it is the buddy of, so that all
//                       ranks can go back to one step
//
// The buddy is `shift` ranks on, round the world: with the ranks of a machine
// together, another machine where there is one (buddy_shift).
//
// It has a communicator of its own and host memory for four copies.
// Errors: CommunicationError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/collectives/counting_communicator.h"
#include "worker/checkpoint/host_state_snapshot.h"

namespace headroom::checkpoint {

// The size of the largest machine; 1 with one machine.
int buddy_shift(int world_size, int most_on_a_machine);

class PeerReplicas {
 public:
  // Collective over `world`. REQUIRES: at least two ranks.
  PeerReplicas(collectives::Communicator& world, int shift);
  ~PeerReplicas();
  PeerReplicas(const PeerReplicas&) = delete;
  PeerReplicas& operator=(const PeerReplicas&) = delete;

  // Sends this rank's part on its way, in place of the newest copy if that is of
  // the same step. Collective. REQUIRES: the state is a committed one.
  void after_commit(step::TrainingState& state, const std::string& newest_line);

  // This rank's own part after the newest commit, packed
  // (host_state_snapshot.h). REQUIRES: there was one.
  const at::Tensor& newest() const { return own_.front().bytes; }

  // Waits for what is on its way, so that a step that fails has whole copies.
  void settle();

  // Lets peers that wait for this rank fail at once. What is on its way is
  // given up: waiting for a dead peer may take the time limit of an operation.
  void disconnect();
  // Goes on over `world`, connected anew, and sends the newest part once more,
  // since its copy may not have arrived. Collective.
  void reconnect(collectives::Communicator& world, step::TrainingState& state,
                 const std::string& newest_line);

  // All complete copies that lie here, whatever became of the ranks. The newest
  // of the buddy's is complete only once its transfer is.
  std::vector<HostStateSnapshot> take() const;

 private:
  // A copy of the state after so many steps.
  struct Version {
    int64_t step = -1;
    at::Tensor bytes;
  };
  static void put(std::vector<Version>& versions, Version newest);

  std::unique_ptr<collectives::CountingCommunicator> communicator_;
  const int to_, from_;  // ranks
  // Newest first.
  std::vector<Version> own_, others_;
  Version arriving_;
  std::unique_ptr<collectives::Work> sending_, receiving_;
};

}  // namespace headroom::checkpoint
