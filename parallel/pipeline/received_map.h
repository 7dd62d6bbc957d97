// received_map: a map from another stage as the beginning of autograd's graph.
//
//   other stage ~~> map -> [ReceivedMap] -> rows of this stage -> ...
//   other stage <~~ gradient <-+
//
// A plain leaf tensor would live until backward is done, since autograd keeps
// its leaves. A map that no operation saves (one that is only concatenated, as
// most skips are) need not: this node keeps where its gradient goes and not the
// map.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace headroom {

// Filled by backward with the sum over all readers in this stage; stays
// undefined if nothing that was differentiated reads the map.
struct MapGradient {
  at::Tensor value;
};

// `map` with a history that ends in `gradient`.
at::Tensor received_map(const at::Tensor& map,
                        std::shared_ptr<MapGradient> gradient);

}  // namespace headroom
