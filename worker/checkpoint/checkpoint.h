// Checkpoints: the training state after N committed steps, in
// checkpoints/step-N/.
//
//   state.safetensors   every flat buffer, entry by entry, named
//                       "<buffer>.<YOLOv5 name>". Entries are whole tensors,
//                       so that a later run may split them differently
//   MANIFEST.json       counters, the run's plan, sizes and digests
//                       (checkpoint_files.h)
//
// Rank 0 writes and reads the files. Other ranks send and receive their parts,
// layer by layer (state_stream.h).
//
// save_checkpoint() blocks training until the files are on disk.
// checkpoint_saver.h writes the same bytes while training continues.
//
// Loading tries the newest checkpoint first. A damaged checkpoint is reported,
// and the previous one is used. Errors: throws Error with the file and the
// remedy; exit 5 if the disk is full while saving.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "worker/checkpoint/state_stream.h"
#include "worker/memory/memory_ladder.h"
#include "worker/step/training_state.h"

namespace headroom::checkpoint {

// Writes checkpoints/step-N for N = state.counters.committed_steps. Then
// removes all but the newest `keep` checkpoints, and every older folder that is
// not finished. Returns the new folder. If the folder cannot be written, only
// rank 0 throws and the other ranks continue. `plan_json` is the plan under
// which the state was made. Collective over mesh->world. If `mesh` is nullptr,
// this rank has the whole state and writes without other ranks. A larger `keep`
// keeps older checkpoints, but takes more disk space.
std::filesystem::path save_checkpoint(const std::filesystem::path& checkpoints,
                                      step::TrainingState& state,
                                      collectives::Mesh* mesh,
                                      const std::string& plan_json,
                                      int64_t keep,
                                      const memory::MemoryRetry& retry = {});

// Writes the averaged weights to one file under YOLOv5's names, whichever ranks
// hold them. If writing fails, the rank that writes throws Error (exit 5) after
// the collective work of all ranks. Collective, like save_checkpoint().
void save_average_weights(const std::filesystem::path& path,
                          step::TrainingState& state, collectives::Mesh* mesh,
                          const std::map<std::string, std::string>& metadata,
                          const memory::MemoryRetry& retry = {});

struct LoadedCheckpoint {
  std::filesystem::path folder;
  // One line for each newer checkpoint that was refused; only at rank 0.
  std::vector<std::string> damaged;
};

// Fills `state` from the newest valid checkpoint, whatever layout it was made
// under. If no checkpoint is valid, rank 0 throws Error with the fault of the
// newest one. Collective, like save_checkpoint().
LoadedCheckpoint load_newest_checkpoint(
    const std::filesystem::path& checkpoints, step::TrainingState& state,
    collectives::Mesh* mesh);

// The step of the newest finished checkpoint; 0 if there is none.
int64_t newest_checkpoint(const std::filesystem::path& checkpoints);

// A stream of the whole state in the order of the file. Collective, like
// save_checkpoint().
StateStream checkpoint_stream(step::TrainingState& state,
                              collectives::Mesh* mesh);

// Writes all counters as text, to send them to other ranks.
std::string counters_to_text(const step::TrainingCounters& counters);
step::TrainingCounters counters_from_text(const std::string& text);

// Bytes that a checkpoint of the whole model takes, for the disk check at the
// start.
int64_t checkpoint_bytes(const std::vector<layers::LayerCost>& layers,
                         optim::OptimizerKind optimizer, at::ScalarType type);

}  // namespace headroom::checkpoint
