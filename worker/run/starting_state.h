// The state that a generation starts from: a fresh state, with weights from a
// file; a checkpoint; or copies in the memory of ranks of an earlier
// generation. The newest state is used. All functions run on the training
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/run_config.h"
#include "parallel/collectives/mesh.h"
#include "parallel/devices/compute_device.h"
#include "parallel/machine/shared_file.h"
#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/checkpoint/orphaned_state.h"
#include "worker/checkpoint/peer_replicas.h"
#include "worker/control/coordinator_client.h"
#include "worker/data/loader/shared_images.h"
#include "worker/memory/device_footprint.h"
#include "worker/memory/memory_ladder.h"
#include "worker/run/run_context.h"
#include "worker/step/fault_injection.h"
#include "worker/step/run_data.h"
#include "worker/step/training_state.h"

namespace headroom::run {

// State that a worker keeps between generations. The generation loop owns it;
// one training run at a time borrows it.
struct CrossGenerationState {
  // The device and its footprint are set at the first assignment. The footprint
  // grows when ranks connect and when steps run.
  std::optional<devices::ComputeDevice> device;
  memory::DeviceFootprint footprint;
  // Faults of --inject; each happens once per process. Null before training.
  std::unique_ptr<step::FaultInjection> faults;
  SharedFiles shared;  // of this worker's agent
  // The images in shared.images; null before the first generation, or if this
  // process keeps its own.
  std::shared_ptr<loader::SharedImages> images;
  int64_t images_limit = 0;  // --host-memory-limit when they were opened
  // Read once, because reading labels is slow.
  std::unique_ptr<step::RunData> data;
  // Network rates, measured by the first generation on several machines.
  std::optional<plan::NetworkRates> network;
  // Copies of committed states of the last generation, or of parts of these
  // states, kept until the next generation has a state.
  std::vector<checkpoint::HostStateSnapshot> held;
  // How these copies become a checkpoint without a coordinator; nullopt before
  // a generation has had a state.
  std::optional<checkpoint::OrphanedState> orphan;
  // What such a checkpoint needs to be resumed on a machine that does not share
  // the run's folder: files, by name. And the run (FolderPlace::run_id), ""
  // before rank 0 is known to have marked that folder.
  std::map<std::string, std::string> definition;
  std::string run_id;
  // The plan to which the memory ladder belongs, and this rank's rung on the
  // ladder.
  std::pair<plan::Plan, memory::LadderState> ladder;

  // Where on the memory ladder (memory_ladder.h) a generation that trains with
  // `plan` starts.
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

// The run's files, read by this worker's first generation and kept for later
// ones. Throws Error if the model differs from the run's: a process that joins
// late may read files that have changed.
step::RunData& read_once(CrossGenerationState& carried,
                         const configs::RunConfig& config,
                         const control::Assignment& assignment);

// The source of a generation's state.
struct StartingPoint {
  bool is_from_checkpoint = false;  // false: from workers' memory
  int64_t checkpoint_steps = 0;     // steps of the newest checkpoint
  std::string newest_line;          // last line of steps.jsonl; "" if unknown
};

// The starting point that the coordinator announces in `assignment`.
StartingPoint announced_point(const control::Assignment& assignment);

// The message for a run with `committed` steps that continues with other data:
// the data set was `before` and is `now`, with `steps_in_epoch` steps. Empty if
// the data is unchanged.
std::string data_change(const step::TrainingData& before,
                        const step::TrainingData& now, int64_t committed,
                        int64_t steps_in_epoch);

// The state before the first step: rank 0 reads --weights, and all ranks get
// the same state. Collective.
std::unique_ptr<step::TrainingState> fresh_state(const RunContext& run,
                                                 collectives::Mesh& mesh);

// Sets `state` to the newest committed state of a run that continues. Reports
// if that state is lost. `held`: this rank's copies of states of an earlier
// generation. Does not change the state of a new run. Collective.
StartingPoint restore(const RunContext& run,
                      const std::vector<checkpoint::HostStateSnapshot>& held,
                      step::TrainingState& state);

// Stores the data set in the state, and reports if the run had another one.
// REQUIRES: a training set.
void note_data(const RunContext& run, step::TrainingCounters& counters);

// Begins to copy this rank's part of the starting state to a buddy rank.
// Returns the object for later copies; null if every rank has the whole state.
// Collective.
std::unique_ptr<checkpoint::PeerReplicas> begin_copies(
    const RunContext& run, step::TrainingState& state);

}  // namespace headroom::run
