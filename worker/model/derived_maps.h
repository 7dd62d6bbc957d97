// DerivedMaps: where a layer says what can be made again instead of being kept.
//
// A layer knows no memory policies. It says what a map was made from and how;
// whoever set StepContext::derived decides whether the map is kept until
// backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "worker/model/step_context.h"

namespace headroom::model {

class DerivedMaps {
 public:
  virtual ~DerivedMaps() = default;

  // Makes the same bits again; without gradient mode, in backward, when the
  // layer's parameters may be gone.
  using Make =
      std::function<at::Tensor(const std::vector<at::Tensor>& sources)>;

  // `map` was made from `sources` without a convolution.
  virtual void can_be_made(const at::Tensor& map,
                           const std::vector<at::Tensor>& sources,
                           Make make) = 0;

  // A piece from a map to a map that saves much more than its input and takes
  // little time.
  using Piece = std::function<at::Tensor(const at::Tensor& input,
                                         const StepContext& inside)>;

  // piece(input, context); what it saves may be made again by running it once
  // more in backward, then without communication.
  virtual at::Tensor run_again(const at::Tensor& input,
                               const StepContext& context, Piece piece) = 0;
};

// make(sources), and said so.
template <typename Make>
at::Tensor derived_map(const std::vector<at::Tensor>& sources,
                       const StepContext& context, const Make& make) {
  at::Tensor map = make(sources);
  if (context.derived != nullptr)
    context.derived->can_be_made(map, sources, make);
  return map;
}

}  // namespace headroom::model
