// PeerReplicas: keeps a second copy of state that only one rank has, such as
// ZeRO shards or the layers of a pipeline stage, and this rank's own part of
// the step before, so that all ranks can go back to the same step.
//
//   after each commit   the buffers that it has changed are copied to host
//                       memory, on a device by a stream of their own, and what
//                       no other machine has is sent to the buddy. On the CPU,
//                       a buddy on this machine maps that memory instead
//   settle()            before the vote of the next step: so where a step
//                       commits, all copies of the step before are complete
//   two versions        of the rank's own part and of the received part are
//                       kept (state_versions.h). A loss during a transfer takes
//                       all ranks back to the step before
//
// The buddy of rank r is rank r + `shift`, modulo the world's size. As the
// ranks of a machine are consecutive, the buddy is on another machine if there
// is one (buddy_shift).
//
// A buddy that maps versions reads them only after a loss. Their memory is used
// again for a newer version only after a commit, that is after all ranks have
// settled the version between the two. No rank needs the old one then.
//
// The object has a communicator of its own. Errors: CommunicationError; Error
// if the host cannot lock memory from which a device's copies are sent.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/collectives/counting_communicator.h"
#include "parallel/collectives/shared_segment.h"
#include "parallel/plan/layout.h"
#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/checkpoint/state_versions.h"
#include "worker/step/training_state.h"

namespace headroom::checkpoint {

// The shift to use: the number of ranks on the largest machine; 1 if there is
// only one machine.
int buddy_shift(int world_size, int most_on_a_machine);

// Whether another rank, on another machine if the shift spans one, has the same
// values: each data rank has undivided ones, and each spatial rank all of them.
bool is_held_elsewhere(const plan::ParallelLayout& layout, int rank,
                       bool is_divided, int shift);

class PeerReplicas {
 public:
  // Collective over `world`. Without `may_share` all copies are sent. REQUIRES:
  // at least two ranks; `state` outlives this object.
  PeerReplicas(collectives::Communicator& world, int shift,
               step::TrainingState& state, bool may_share = true);
  ~PeerReplicas();
  PeerReplicas(const PeerReplicas&) = delete;
  PeerReplicas& operator=(const PeerReplicas&) = delete;

  // Starts copying and sending what the newest commit has changed; the first
  // time all. Collective. REQUIRES: the state is that of a committed step; it
  // does not change before settle().
  void after_commit();
  // Waits for the running copy and transfer. Collective.
  void settle();

  // This rank's own part after the newest commit. REQUIRES: after_commit() has
  // been called.
  HostStateSnapshot newest() const;
  // All complete copies on this rank: of its own part and of the received part,
  // without lines of steps.jsonl.
  std::vector<HostStateSnapshot> take() const;

  // Makes peers that wait for this rank fail at once, and drops the running
  // transfer: waiting for a dead peer could take as long as an operation's time
  // limit.
  void disconnect();
  // Continues over the reconnected `world` and sends the newest part again,
  // because its copy may not have arrived. Collective.
  void reconnect(collectives::Communicator& world);

  // Bytes sent so far. A version that the buddy maps takes a few.
  int64_t sent_bytes() const { return communicator_->bytes(); }
  // Host memory of all versions, while a checkpoint is written from one.
  int64_t host_bytes() const;

 private:
  using Change = VersionLayout::Change;
  // Consecutive elements that are copied at once.
  struct Run {
    const at::Tensor* flat;
    int64_t from, size;
    int64_t at;  // in the kind's bytes
  };
  // The copies of this rank's part, and where they come from. `sent` is the
  // first part of each kind.
  struct OwnPart {
    std::array<std::vector<Run>, VersionLayout::kKinds.size()> runs;
    VersionLayout layout, sent;
  };
  OwnPart own_part(int shift) const;
  void add(const step::TrainingState::Buffer& buffer, OwnPart& part) const;

  // Where the buddy finds the bytes of a kind.
  struct SharedBytes {
    Change change;
    int64_t bytes = 0;
    collectives::SegmentAddress address;
  };
  void agree_on_sharing(bool may_share);
  at::Tensor allocate(int64_t bytes);
  void map_received();

  bool has_changed(Change change) const;
  void copy(Change change);
  void copy_own();
  void begin_transfer();
  void await_copy() const;

  step::TrainingState& state_;
  std::unique_ptr<collectives::CountingCommunicator> communicator_;
  const int to_, from_;  // ranks to send to and to receive from
  const OwnPart part_;
  // Whether the buddy maps this rank's versions, and this rank those of the
  // rank that it receives from.
  bool is_mapped_ = false, maps_ = false;
  // Of the versions that the buddy maps, by the beginning of their memory.
  std::map<const void*, SharedBytes> shared_;
  StateVersions own_;
  std::unique_ptr<StateVersions> others_;
  std::vector<Change> changed_;  // by the newest commit
  bool is_transferring_ = false;
  // On a device: the stream of the copies, and their end.
  std::optional<c10::Stream> copies_;
  std::optional<c10::Event> copied_;
  // Starts the transfer when the device has copied.
  std::future<void> starting_;
  std::vector<at::Tensor> sent_, received_;  // of a transfer that is to start
  std::vector<at::Tensor> to_map_;           // SharedBytes that are received
  std::vector<std::unique_ptr<collectives::Work>> works_;
};

}  // namespace headroom::checkpoint
