// The state that a generation starts from: fresh, with weights from a file,
// from a checkpoint, or what the ranks still hold of an earlier generation,
// whichever is newest. All functions run on the thread that trains.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "configs/run_config.h"
#include "parallel/collectives/mesh.h"
#include "parallel/devices/compute_device.h"
#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/checkpoint/peer_replicas.h"
#include "worker/control/coordinator_client.h"
#include "worker/memory/memory_ladder.h"
#include "worker/step/run_inputs.h"
#include "worker/step/training_state.h"

namespace headroom::run {

// What outlives a generation on a worker, for the next one. The generation loop
// holds it and lends it to one training run at a time.
struct CrossGenerationState {
  // The same in every generation: reading a data set's labels takes its time.
  std::shared_ptr<step::RunInputs> inputs;
  // The network, in the run's first generation where there are machines.
  std::optional<plan::NetworkRates> network;
  // Committed states, or parts of them: of the last generation until the next
  // one has a state of its own.
  std::vector<checkpoint::HostStateSnapshot> held;
  // The rung of this rank, and the plan whose ladder it is.
  std::pair<plan::Plan, memory::LadderState> ladder;

  // Where a generation under `plan` begins on its ladder.
  memory::LadderState ladder_of(const plan::Plan& plan) const {
    return ladder.first == plan ? ladder.second : memory::LadderState{};
  }
  int64_t newest_step() const {
    int64_t newest = 0;
    for (const checkpoint::HostStateSnapshot& state : held) {
      newest = std::max(newest, state.counters.committed_steps);
    }
    return newest;
  }
};

// Whether the run goes on: from a checkpoint of an earlier start, or from what
// an earlier generation of this one left.
bool continues_run(const configs::RunConfig& config,
                   const control::Assignment& assignment);

// The run's files, read by its first generation on this worker and carried
// from there. Throws Error where the model is no longer the run's: a process
// that joins a run reads files that may have changed since it began.
step::RunInputs& read_once(CrossGenerationState& carried,
                           const configs::RunConfig& config,
                           const control::Assignment& assignment);

// The source of a generation's state.
struct StartingPoint {
  bool is_from_checkpoint = false;  // a file's, not the workers' memory
  int64_t checkpoint_steps = 0;     // steps of the newest checkpoint
  std::string newest_line;          // steps.jsonl's; "" where none came with it
};

// What the coordinator says before anything is restored.
StartingPoint announced_point(const control::Assignment& assignment);

struct StateRequest {
  const configs::RunConfig& config;
  const control::Assignment& assignment;
  const step::RunInputs& inputs;
  const devices::ComputeDevice& device;
  collectives::Mesh& mesh;
  control::CoordinatorClient& client;
};

// The state before the first step of a run: rank 0 reads --weights, and all
// ranks get the same. Collective.
std::unique_ptr<step::TrainingState> fresh_state(const StateRequest& request);

// Makes `state` the newest committed one of a run that goes on; says so where
// it is lost. `held`: what this rank kept of an earlier generation. A new run's
// state stays as it is. Collective.
StartingPoint restore(const StateRequest& request,
                      const std::vector<checkpoint::HostStateSnapshot>& held,
                      step::TrainingState& state);

// Counts the data set as the state's own, and says where it is not the one that
// the run had. REQUIRES: a training set.
void note_data(const StateRequest& request, int64_t steps_in_epoch,
               step::TrainingCounters& counters);

// Copies for buddies of a state whose parts lie on single ranks, also of what
// these have before their first step; null: every rank has all of it.
// Collective.
std::unique_ptr<checkpoint::PeerReplicas> begin_copies(
    const control::Assignment& assignment, collectives::Mesh& mesh,
    const std::string& newest_line, step::TrainingState& state);

}  // namespace headroom::run
