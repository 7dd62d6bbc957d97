// Pixels as a tensor in the loader's own memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom {

// [n, height, width, bands] uint8, not initialised, and not from LibTorch's
// allocator: what a step is measured by must not contain what the loader
// prefetches. Throws std::bad_alloc.
at::Tensor make_image_tensor(int64_t n, int64_t height, int64_t width,
                             int64_t bands = 3);

}  // namespace headroom
