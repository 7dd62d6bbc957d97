// Saves the newest committed state of a run that has lost its coordinator and a
// worker. The remaining workers cannot connect to each other any more, so they
// exchange their copies of the state through files beside the checkpoints:
//
//   checkpoints/parts/rank-2   the copies that rank 2 holds, its own and those
//                              for its buddy (peer_replicas.h); not written if
//                              this rank holds the whole state
//   checkpoints/parts/lock     held while a checkpoint is written
//
// Each worker writes its file, takes the lock, and writes the checkpoint if all
// files together contain a newer state than the newest checkpoint. So if a
// complete state exists, the last worker to arrive can write it; if each worker
// holds the whole state, the first one can. The other workers then find the
// checkpoint. Its bytes are the same as those of any other checkpoint of that
// step.
//
// All workers must share the folder. On a machine with a folder of its own, the
// workers can save a checkpoint only if they hold a complete state.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint_saver.h"
#include "worker/checkpoint/host_state_snapshot.h"

namespace headroom::checkpoint {

// How a run's checkpoints are written. Known once the run has a state.
struct OrphanedState {
  std::filesystem::path checkpoints;
  std::string plan_json;
  int64_t keep = 2;
  CheckpointJob::Blocks blocks;  // the blocks of the whole state
  int rank = 0;
};

struct OrphanedSave {
  // Steps of the newest checkpoint afterwards, from any process; 0 if there is
  // none.
  int64_t step = 0;
  // The last step's line of steps.jsonl, "" if unknown. nullopt if this process
  // did not write the checkpoint.
  std::optional<std::string> newest_line;
};

// `held`: this process's copies. Returns when a checkpoint of the newest step
// in `held` exists, or after `patience`. Until then other processes may add
// their parts. Errors: Error with exit code 5 if the checkpoint cannot be
// written.
OrphanedSave save_orphaned(const OrphanedState& state,
                           const std::vector<HostStateSnapshot>& held,
                           std::chrono::milliseconds patience);

// Removes the files of an earlier save that was not finished.
void remove_orphaned_parts(const std::filesystem::path& checkpoints);

}  // namespace headroom::checkpoint
