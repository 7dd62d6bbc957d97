// What ranks agree on before the first step.
//
// Collective. Errors: CommunicationError; Error (exit 4) where ranks differ.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/collectives/communicator.h"
#include "worker/model/layer_graph.h"

namespace headroom::step {

// Rank 0's state of the model on every rank. Collective.
void replicate(collectives::Communicator& communicator,
               model::LayerGraph& model);

// Throws naming the first rank whose `digest` differs from rank 0's; `what`
// names the thing ("the training images and labels").
void require_same_on_all_ranks(collectives::Communicator& communicator,
                               uint64_t digest, const std::string& what);

}  // namespace headroom::step
