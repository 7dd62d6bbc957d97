// validate_heads: the validation of validate.h by one process alone, of
// whatever makes the heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "worker/validate.h"

namespace headroom {

// The heads of a batch's images.
using HeadsOf = std::function<std::vector<at::Tensor>(const Batch&)>;

// `model` decodes them; `source` yields the whole split.
ValidationResult validate_heads(const LayerGraph& model,
                                const HeadsOf& heads_of, BatchSource& source,
                                const ValidationOptions& options);

}  // namespace headroom
