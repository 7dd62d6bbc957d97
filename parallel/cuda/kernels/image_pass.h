// Loaded images as the network's input: the launcher of its kernel; launch.h
// has what it promises.
#pragma once

#include <cstdint>

#include "parallel/cuda/kernels/launch.h"

namespace headroom::cuda {

struct ImageArguments {
  ElementType type = ElementType::kFloat32;  // the input's type
  const void* images = nullptr;
  bool is_deep = false;     // Images are uint16, else uint8.
  void* input = nullptr;    // each level / the largest, in the same order
  int64_t size = 0;         // counted in elements
  bool is_aligned = false;  // both, to 16 bytes
};

}  // namespace headroom::cuda

extern "C" int headroom_scale_images(
    const headroom::cuda::ImageArguments* arguments, void* stream);
