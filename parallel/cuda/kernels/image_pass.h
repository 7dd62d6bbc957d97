// The launcher of the kernel that converts loaded images to the network's
// input. See launch.h for its contract.
#pragma once

#include <cstdint>

#include "parallel/cuda/kernels/launch.h"

namespace headroom::cuda {

struct ImageArguments {
  ElementType type = ElementType::kFloat32;  // the input's type
  const void* images = nullptr;
  bool is_deep = false;     // true: uint16, false: uint8
  void* input = nullptr;    // level / largest level, ordered like `images`
  int64_t size = 0;         // in elements
  bool is_aligned = false;  // both pointers are aligned to 16 bytes
};

}  // namespace headroom::cuda

extern "C" int headroom_scale_images(
    const headroom::cuda::ImageArguments* arguments, void* stream);
