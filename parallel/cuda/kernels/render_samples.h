// The launcher of the rendering kernel. See launch.h for its contract.
#pragma once

#include <cstdint>

namespace headroom::cuda {

inline constexpr int kMostRendered = 64;  // samples per launch

// Renders the PackedSamples at region + starts[i] to images [count, rows,
// width, bands], uint8 or uint16.
struct RenderArguments {
  const uint8_t* region = nullptr;
  int64_t starts[kMostRendered] = {};
  int32_t count = 0;
  void* images = nullptr;
  int32_t rows = 0, width = 0, bands = 0;
  bool is_deep = false;  // true: uint16, false: uint8
};

extern "C" {
int headroom_render_samples(const RenderArguments* arguments, void* stream);
}

}  // namespace headroom::cuda
