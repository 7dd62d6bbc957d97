// DerivedMaps: the interface through which a layer reports maps that can be
// computed again instead of being kept.
//
// Layers do not depend on memory policies. A layer reports a map's sources and
// how to compute it; the implementation in StepContext::derived decides whether
// the map is kept until backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "worker/model/step_context.h"

namespace headroom::model {

class DerivedMaps {
 public:
  virtual ~DerivedMaps() = default;

  // Computes a map again, equal bit for bit. Called in backward with gradient
  // mode off; the layer's parameters may have been released by then.
  using Make =
      std::function<at::Tensor(const std::vector<at::Tensor>& sources)>;

  // Reports that `map` was computed from `sources` without a convolution.
  virtual void can_be_made(const at::Tensor& map,
                           const std::vector<at::Tensor>& sources,
                           Make make) = 0;

  // A part of a layer that makes one map from one map. It takes little time,
  // but saves much more for backward than its input.
  using Piece = std::function<at::Tensor(const at::Tensor& input,
                                         const StepContext& inside)>;

  // Returns piece(input, context). The tensors that the piece saves may be
  // computed again in backward: the piece is then run once more, without
  // communication.
  virtual at::Tensor run_again(const at::Tensor& input,
                               const StepContext& context, Piece piece) = 0;
};

// Returns make(sources), and reports it to context.derived if that is set.
template <typename Make>
at::Tensor derived_map(const std::vector<at::Tensor>& sources,
                       const StepContext& context, const Make& make) {
  at::Tensor map = make(sources);
  if (context.derived != nullptr)
    context.derived->can_be_made(map, sources, make);
  return map;
}

}  // namespace headroom::model
