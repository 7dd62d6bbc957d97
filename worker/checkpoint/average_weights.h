// average_weights: the EMA as a weights file under YOLOv5's names, wherever its
// parts lie.
//
// Errors: Error with exit code 5 at the rank that writes, once all ranks have
// done their part; CommunicationError.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "worker/memory/memory_ladder.h"
#include "worker/step/training_state.h"

namespace headroom::checkpoint {

// Collective over mesh->world, whose rank 0 writes; null: this rank has the
// whole state and writes alone.
void save_average_weights(const std::filesystem::path& path,
                          step::TrainingState& state, collectives::Mesh* mesh,
                          const std::map<std::string, std::string>& metadata,
                          const memory::MemoryRetry& retry = {});

}  // namespace headroom::checkpoint
