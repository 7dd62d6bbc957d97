// recompute: runs a piece of the forward pass that keeps only its inputs and
// runs once more in backward (Chen et al., "Training Deep Nets with Sublinear
// Memory Cost", 2016).
//
// The autograd graph is the same as that of a plain call; only the tensors that
// its nodes saved are computed again. All of them are computed when the first
// is needed, and each is released as soon as its node has used it. Gradients
// are bit-identical if the piece computes the same values again: the piece gets
// the pass as an argument, must not communicate or count in the second pass,
// and draws no random numbers.
//
// An input that has a derivation is not kept either. The tensors that the
// second pass saves are kept with keep(), so maps with a derivation are not
// held during the piece's backward. The second pass may also compute the
// piece's output again, for the pieces after it: then neighbouring pieces are
// recomputed as one.
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
  // Inputs whose derivation costs at most this are computed again too.
  // kConvolution saves more memory and recomputes more.
  DerivationCost inputs = DerivationCost::kElementwise;
  // The cost of the derivation that the piece's only output gets. Without a
  // value, the output gets no derivation, and a node that saves the output
  // keeps it in memory.
  std::optional<DerivationCost> output;
};

// Calls piece(inputs, Pass::kFirst). Holds `piece` and the inputs until
// backward has used the saved tensors, or the graph is dropped.
std::vector<at::Tensor> recompute(Recomputable piece,
                                  const std::vector<at::Tensor>& inputs,
                                  const RecomputeOptions& options = {});

}  // namespace headroom::activations
