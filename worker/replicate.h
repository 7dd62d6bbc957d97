// What ranks agree on before the first step.
//
// Collective. Errors: CommunicationError; Error (exit 4) where ranks differ.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/collectives/communicator.h"
#include "worker/training_state.h"

namespace headroom {

// Rank 0's buffers and counters on every rank.
void replicate(Communicator& communicator, TrainingState& state);

// Throws naming the first rank whose `digest` differs from rank 0's; `what`
// names the thing ("the training images and labels").
void require_same_on_all_ranks(Communicator& communicator, uint64_t digest,
                               const std::string& what);

}  // namespace headroom
