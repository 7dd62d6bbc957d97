// recompute: a piece of the forward pass that keeps only its inputs and is run
// once more in backward (Chen et al., "Training Deep Nets with Sublinear Memory
// Cost", 2016).
//
// The graph is the one of the plain call; only what its nodes saved is produced
// again, all of it when the first is asked for, and each tensor is released as
// soon as its node has used it. So gradients are bit-identical, provided that
// the piece computes the same again: it is told which pass it is in, must not
// communicate or count in the second, and draws nothing at random.
//
// An input that has a derivation is not kept either. What the second pass saves
// is kept as keep() does: maps that it gives a derivation are not held through
// the piece's backward. The piece's output may be made again in the same run,
// for who comes behind: then neighbouring pieces become one.
//
// REQUIRES: install_saved_tensor_policies(); one backward per call.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "parallel/activations/derivation.h"

namespace headroom::activations {

enum class Pass { kFirst, kAgain };

using Recomputable = std::function<std::vector<at::Tensor>(
    const std::vector<at::Tensor>& inputs, Pass pass)>;

struct RecomputeOptions {
  // Inputs whose derivations cost at most this are made again too.
  DerivationCost inputs = DerivationCost::kElementwise;
  // The derivation that the only output gets; without one, who saves it keeps
  // it.
  std::optional<DerivationCost> output;
};

// piece(inputs, Pass::kFirst). Holds `piece` and the inputs until backward has
// used what it saved, or the graph is dropped.
std::vector<at::Tensor> recompute(Recomputable piece,
                                  const std::vector<at::Tensor>& inputs,
                                  const RecomputeOptions& options = {});

}  // namespace headroom::activations
