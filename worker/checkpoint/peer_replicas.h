// PeerReplicas: keeps a second copy of state that only one rank has, such as
// ZeRO shards or the layers of a pipeline stage.
//
//   after each commit   a rank packs its part and sends it to its buddy; the
//                       transfer may last until the next step begins
//   two versions        of the rank's own part and of the received part are
//                       kept, so that all ranks can go back to the same step
//
// The buddy of rank r is rank r + `shift`, modulo the world's size. As the
// ranks of a machine are consecutive, the buddy is on another machine if there
// is one (buddy_shift).
//
// The object has a communicator of its own, and uses host memory for four
// copies.
// Errors: CommunicationError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/collectives/counting_communicator.h"
#include "worker/checkpoint/host_state_snapshot.h"

namespace headroom::checkpoint {

// The shift to use: the number of ranks on the largest machine; 1 if there is
// only one machine.
int buddy_shift(int world_size, int most_on_a_machine);

class PeerReplicas {
 public:
  // Collective over `world`. REQUIRES: at least two ranks.
  PeerReplicas(collectives::Communicator& world, int shift);
  ~PeerReplicas();
  PeerReplicas(const PeerReplicas&) = delete;
  PeerReplicas& operator=(const PeerReplicas&) = delete;

  // Starts sending this rank's part. Replaces the newest copy if that copy is
  // of the same step. Collective. REQUIRES: the state is that of a committed
  // step.
  void after_commit(step::TrainingState& state);

  // This rank's own part after the newest commit, packed
  // (host_state_snapshot.h). REQUIRES: after_commit() has been called.
  const at::Tensor& newest() const { return own_.front().bytes; }

  // Waits for the running transfer. Call before the next step, which may need
  // the copy.
  void settle();

  // Makes peers that wait for this rank fail at once, and drops the running
  // transfer: waiting for a dead peer could take as long as an operation's time
  // limit.
  void disconnect();
  // Continues over the reconnected `world` and sends the newest part again,
  // because its copy may not have arrived. Collective.
  void reconnect(collectives::Communicator& world, step::TrainingState& state);

  // Returns all complete copies on this rank: of its own part and of the
  // received part, without lines of steps.jsonl. The newest received copy is
  // complete only after its transfer has ended.
  std::vector<HostStateSnapshot> take() const;

 private:
  struct Version {
    int64_t step = -1;
    at::Tensor bytes;
  };
  static void put(std::vector<Version>& versions, Version newest);

  std::unique_ptr<collectives::CountingCommunicator> communicator_;
  const int to_, from_;  // ranks to send to and to receive from
  // Newest first.
  std::vector<Version> own_, others_;
  Version arriving_;
  std::unique_ptr<collectives::Work> sending_, receiving_;
};

}  // namespace headroom::checkpoint
