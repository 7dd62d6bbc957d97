// average_weights: the EMA as a weights file under YOLOv5's names, wherever its
// parts lie.
//
// Errors: Error with exit code 5 at the rank that writes, once all ranks have
// done their part; CommunicationError.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "worker/memory_retry.h"
#include "worker/training_state.h"

namespace headroom {

// Collective over mesh->world, whose rank 0 writes; null: this rank has the
// whole state and writes alone.
void save_average_weights(const std::filesystem::path& path,
                          TrainingState& state, Mesh* mesh,
                          const std::map<std::string, std::string>& metadata,
                          const MemoryRetry& retry = {});

}  // namespace headroom
