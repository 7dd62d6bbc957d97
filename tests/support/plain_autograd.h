// plain_autograd: the memory of a detector written with LibTorch's operators
// and nothing else: convolution, batch norm and SiLU each keep a map for
// backward, pooling keeps indices. What activation policies are measured
// against.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "configs/model_table.h"

namespace headroom {

// Bytes that are live after a forward of training beyond the weights, heads
// included, loss excluded; counted by the counting allocator.
int64_t plain_autograd_bytes(const ModelTable& table, int64_t num_classes,
                             int64_t images, int64_t height, int64_t width,
                             at::ScalarType type);

}  // namespace headroom
