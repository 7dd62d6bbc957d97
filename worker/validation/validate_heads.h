// validate_heads: the validation of validate.h by one process alone, of
// whatever makes the heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "worker/validation/validate.h"

namespace headroom::validation {

// The heads of a batch's images.
using HeadsOf = std::function<std::vector<at::Tensor>(const loader::Batch&)>;

// `model` decodes them; `source` yields the whole split.
ValidationResult validate_heads(const model::LayerGraph& model,
                                const HeadsOf& heads_of,
                                loader::BatchSource& source,
                                const ValidationOptions& options);

}  // namespace headroom::validation
