// The state that a generation starts from, the newest of: fresh, with weights
// from a file, from a checkpoint, or what ranks still hold of an earlier
// generation. All functions run on the thread that trains.
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
#include "worker/memory/device_footprint.h"
#include "worker/memory/memory_ladder.h"
#include "worker/run/run_context.h"
#include "worker/step/fault_injection.h"
#include "worker/step/run_data.h"
#include "worker/step/training_state.h"

namespace headroom::run {

// What a worker keeps from one generation to the next. The generation loop owns
// it; one training run at a time borrows it.
struct CrossGenerationState {
  // Since the first assignment; the footprint grows with connections and steps.
  std::optional<devices::ComputeDevice> device;
  memory::DeviceFootprint footprint;
  // Each fires once in the life of the worker. Null before training.
  std::unique_ptr<step::FaultInjection> faults;
  // Read once, because labels take long to read.
  std::unique_ptr<step::RunData> data;
  // Measured by a run's first generation on several machines.
  std::optional<plan::NetworkRates> network;
  // Committed states of the last generation, or parts of them, until the next
  // one has a state.
  std::vector<checkpoint::HostStateSnapshot> held;
  // The rung of this rank, and the plan whose ladder it is.
  std::pair<plan::Plan, memory::LadderState> ladder;

  // The rung on which a generation under `plan` begins.
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

// The run's files, read by its first generation on this worker and kept for
// later ones. Throws Error if the model is not the run's: a process that joins
// late reads files that may have changed.
step::RunData& read_once(CrossGenerationState& carried,
                         const configs::RunConfig& config,
                         const control::Assignment& assignment);

// The source of a generation's state.
struct StartingPoint {
  bool is_from_checkpoint = false;  // a file's, not the workers' memory
  int64_t checkpoint_steps = 0;     // steps of the newest checkpoint
  std::string newest_line;          // steps.jsonl's; "" where none came with it
};

// The coordinator's announcement, before anything is restored.
StartingPoint announced_point(const control::Assignment& assignment);

// The message where a run of `committed` steps goes on with the data `now`, of
// `steps_in_epoch`; empty if nothing has changed.
std::string data_change(const step::TrainingData& before,
                        const step::TrainingData& now, int64_t committed,
                        int64_t steps_in_epoch);

// The state before the first step of a run: rank 0 reads --weights, and all
// ranks get the same. Collective.
std::unique_ptr<step::TrainingState> fresh_state(const RunContext& run,
                                                 collectives::Mesh& mesh);

// Makes `state` the newest committed one of a run that goes on, and reports if
// it is lost. `held`: this rank's states of an earlier generation. The state of
// a new run is not changed. Collective.
StartingPoint restore(const RunContext& run,
                      const std::vector<checkpoint::HostStateSnapshot>& held,
                      step::TrainingState& state);

// Notes the data set in the state, and reports if the run had another one.
// REQUIRES: a training set.
void note_data(const RunContext& run, step::TrainingCounters& counters);

// Begins to copy this rank's part of the state to a buddy rank, first the state
// before the first step; null if every rank has the whole state. Collective.
std::unique_ptr<checkpoint::PeerReplicas> begin_copies(
    const RunContext& run, const std::string& newest_line,
    step::TrainingState& state);

}  // namespace headroom::run
