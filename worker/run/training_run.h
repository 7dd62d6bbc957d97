// TrainingRun: the training of one generation, from the checks before the first
// step to summary.json.
//
//   prepare   data set, model, weights or checkpoint, run directory
//   epochs    steps, validation, results, weights, checkpoint
//   end       at a committed step (run_end.h). If memory is short, the run may
//             go on from its checkpoint under another plan.
//
// Rank 0 writes the files. All ranks take the same decisions, because they use
// the same numbers.
//
// The training state is kept when a peer is lost, so that it can still be saved
// (save_committed). If a generation fails and all its ranks still run, at the
// same committed step and under the same plan, the next generation keeps this
// object with its state, loaders, index and caches (enter).
//
// Ownership: owns the run's context (run_context.h) and all objects that use
// it; borrows the client and CrossGenerationState.
// Threads: one, in addition to the loader's.
// Errors: CommunicationError when a peer is lost; Error otherwise.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/control/coordinator_client.h"
#include "worker/run/run_end.h"
#include "worker/run/starting_state.h"

namespace headroom::collectives {
class Communicator;
}

namespace headroom::run {

class TrainingRun {
 public:
  // Reads the data set's index before ranks are connected, because nodes may
  // take different times for it. REQUIRES: a device and faults in `carried`.
  TrainingRun(const control::Assignment& assignment,
              control::CoordinatorClient& client,
              CrossGenerationState& carried);
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  // Checks everything that can refuse the run, then trains. Collective. If the
  // object is kept for a later generation, `communicator` is the same object,
  // connected again. Throws CommunicationError if a peer is lost,
  // c10::OutOfMemoryError if this rank lacks memory for work that it does with
  // its peers.
  RunOutcome run(collectives::Communicator& communicator);

  // Whether the next generation can keep this object.
  bool can_go_on() const;
  // The next run() is for `next`, in which every rank keeps its place.
  // REQUIRES: can_go_on().
  void enter(const control::Assignment& next);

  // After run() ran out of memory: whether this rank will need less memory in
  // the next generation. Called before leave_peers().
  bool needs_less() const;

  // Writes the last committed step's state after a peer was lost. `place`:
  // where rank 0 wrote the run's folder.
  RunOutcome save_committed(const FolderPlace& place);
  int64_t committed_steps() const;
  int64_t recorded_epochs() const;
  int64_t checkpoint_steps() const;
  // Whether save_committed() can succeed.
  bool holds_whole_state() const;

  // Keeps this rank's part of the committed state for the next generation.
  void hold_committed();

  // A rank has computed wrong, so this rank's state and copies are wrong, too:
  // they are neither kept nor saved from now on.
  void distrust();

  // Closes this rank's connections, so that peers that wait for it fail at
  // once.
  void leave_peers();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace headroom::run
