// Where autograd's graph of one stage begins and ends.
//
//   map ~~> [received_map] -> layers of the stage -> [sent_map] ~~> map
//   gradient <~~ <-                                          <- <~~ gradient
//
// Nodes of their own, since autograd would keep more than it needs:
//   - a leaf tensor lives until backward is done; the node keeps where its
//     gradient goes and not the map, so that a map which no operation saves
//     (one that is only concatenated, as most skips are) is freed;
//   - a gradient that is handed to the engine stays until backward is done; the
//     node gives it away, so that the first operation may overwrite it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace headroom::pipeline {

struct MapGradient {
  at::Tensor value;
};

// `map` with a history that ends in `gradient`: backward fills it with the sum
// over all readers in this stage, or leaves it undefined if nothing that was
// differentiated reads the map.
at::Tensor received_map(const at::Tensor& map,
                        std::shared_ptr<MapGradient> gradient);

// A scalar whose backward, with whatever gradient, continues in `map`'s with
// the value of `gradient`, which it takes away. Undefined if `map` wants no
// gradient.
at::Tensor sent_map(const at::Tensor& map,
                    std::shared_ptr<MapGradient> gradient);

}  // namespace headroom::pipeline
