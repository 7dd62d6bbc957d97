// Checkpoints: the state after N committed steps, in checkpoints/step-N/.
//
//   state.safetensors   every flat buffer, entry by entry, under
//                       "<buffer>.<YOLOv5 name>" (logical tensors, so that a
//                       later run may split them differently)
//   MANIFEST.json       counters, the run's plan, sizes and digests
//                       (checkpoint_files.h)
//
// Rank 0 writes and reads; the others send and receive their parts, layer by
// layer (state_stream.h).
//
// Here training waits until the files are on disk; beside training they are
// written by checkpoint_saver.h, to the same bytes.
//
// Loading goes from the newest to the oldest: a damaged one is named and the
// one before is used.
// Errors: Error naming file and remedy; saving to a full disk is exit 5.
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

// Writes checkpoints/step-N for N = state.counters.committed_steps, then
// removes all but the newest `keep` (and every unfinished older folder).
// Returns the new folder. Where it cannot be written rank 0 alone throws, the
// others go on. `plan_json`: the plan the state was made under.
// Collective over mesh->world, whose rank 0 writes; null: this rank has the
// whole state and writes alone.
std::filesystem::path save_checkpoint(const std::filesystem::path& checkpoints,
                                      step::TrainingState& state,
                                      collectives::Mesh* mesh,
                                      const std::string& plan_json,
                                      int64_t keep,
                                      const memory::MemoryRetry& retry = {});

// Writes the averaged weights as a file under YOLOv5's names, wherever their
// parts lie. Throws Error (exit 5) at the rank that writes, once all ranks have
// done their part. Collective as above.
void save_average_weights(const std::filesystem::path& path,
                          step::TrainingState& state, collectives::Mesh* mesh,
                          const std::map<std::string, std::string>& metadata,
                          const memory::MemoryRetry& retry = {});

struct LoadedCheckpoint {
  std::filesystem::path folder;
  // One line for each newer one that is refused; empty but at rank 0.
  std::vector<std::string> damaged;
};

// Fills `state` from the newest valid checkpoint, whatever layout it was made
// under. Rank 0 throws Error when there is none, with the newest one's fault.
// Collective as above.
LoadedCheckpoint load_newest_checkpoint(
    const std::filesystem::path& checkpoints, step::TrainingState& state,
    collectives::Mesh* mesh);

// Steps of the newest folder that has its manifest; 0 if there is none.
int64_t newest_checkpoint(const std::filesystem::path& checkpoints);

// A stream of the whole state in the order of the file. Collective as above.
StateStream checkpoint_stream(step::TrainingState& state,
                              collectives::Mesh* mesh);

// All counters, as a text for other ranks.
std::string counters_to_text(const step::TrainingCounters& counters);
step::TrainingCounters counters_from_text(const std::string& text);

// Bytes that a checkpoint of the whole model takes, for the disk check at the
// start.
int64_t checkpoint_bytes(const std::vector<layers::LayerCost>& layers,
                         optim::OptimizerKind optimizer, at::ScalarType type);

}  // namespace headroom::checkpoint
