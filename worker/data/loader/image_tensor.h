// Pixels as a tensor in the loader's own memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace headroom::loader {

// Where pixels lie; empty: in memory of malloc's. Throws std::bad_alloc or
// Error.
using AllocateImages = std::function<std::shared_ptr<void>(int64_t bytes)>;

// [n, height, width, bands] uint8, not initialised, and not from LibTorch's
// allocator: what a step is measured by must not contain what the loader
// prefetches. Throws std::bad_alloc.
at::Tensor make_image_tensor(int64_t n, int64_t height, int64_t width,
                             int64_t bands = 3,
                             const AllocateImages& allocate = {});

}  // namespace headroom::loader
