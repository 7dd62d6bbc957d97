// TrainingRun: one generation's training, from the checks before the first step
// to the last line of summary.json.
//
//   prepare   data set, model, weights or checkpoint, run directory
//   epochs    steps, validation, results, weights, checkpoint
//   end       at a committed step (run_end.h). Where memory is short the run
//             may go on under another plan, from its checkpoint.
//
// Rank 0 writes; every rank takes the same decisions from the same numbers.
//
// The training state outlives a lost peer, so that it can still be saved
// (save_committed). Where all ranks of a generation that has failed are still
// there, at one committed step and under one plan, the next generation keeps
// the whole object: state, loaders, index and caches (enter).
// Threads: one, besides the loader's.
// Errors: CommunicationError when a peer is lost; Error otherwise.
#pragma once

#include <cstdint>
#include <memory>

#include "parallel/devices/compute_device.h"
#include "worker/control/coordinator_client.h"
#include "worker/memory/device_footprint.h"
#include "worker/run/run_end.h"
#include "worker/run/starting_state.h"
#include "worker/step/fault_injection.h"

namespace headroom::collectives {
class Communicator;
}

namespace headroom::run {

class TrainingRun {
 public:
  struct Inputs {
    const control::Assignment& assignment;
    control::CoordinatorClient& client;
    step::FaultInjection& faults;  // outlives generations: each fires once
    const devices::ComputeDevice& device;
    memory::DeviceFootprint& footprint;  // the process's part of the device
    CrossGenerationState& carried;       // what the last generation left
  };
  // Reads the data set's index: before ranks are connected, since nodes may
  // differ in how long that takes.
  explicit TrainingRun(const Inputs& inputs);
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  // Everything that can refuse the run, then its training. Collective. In a
  // later generation `communicator` is the same one, connected anew.
  // Throws CommunicationError where a peer is lost, c10::OutOfMemoryError where
  // this rank has no memory for something that it does with its peers.
  RunOutcome run(collectives::Communicator& communicator);

  // Whether this rank could go on in the next generation as it is.
  bool can_go_on() const;
  // run() is next called for that assignment, which keeps every rank's place.
  // REQUIRES: can_go_on().
  void enter(const control::Assignment& next);

  // After run() ran out of memory: whether this rank takes less where it did in
  // the next generation. Asked before leave_peers().
  bool needs_less() const;

  // Writes the state of the last committed step, after a peer was lost.
  RunOutcome save_committed();
  int64_t committed_steps() const;
  int64_t recorded_epochs() const;
  // Steps of the newest checkpoint; 0 if there is none.
  int64_t checkpoint_steps() const;
  // Whether save_committed() can succeed.
  bool holds_whole_state() const;

  // Carries what this rank has of the committed state to the next generation,
  // which goes on from it.
  void hold_committed();

  // Lets peers that wait for this rank fail at once, after one was lost.
  void leave_peers();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace headroom::run
