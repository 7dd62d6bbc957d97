// The kernel that renders samples, for g++; see launch.h for what launchers
// promise.
#pragma once

#include <cstdint>

namespace headroom::cuda {

inline constexpr int kMostRendered = 64;  // samples of one launch

// PackedSamples at region + starts[i] become images [count, rows, width,
// bands], uint8 or uint16.
struct RenderArguments {
  const uint8_t* region = nullptr;
  int64_t starts[kMostRendered] = {};
  int32_t count = 0;
  void* images = nullptr;
  int32_t rows = 0, width = 0, bands = 0;
  bool is_deep = false;  // Images are uint16.
};

extern "C" {
int headroom_render_samples(const RenderArguments* arguments, void* stream);
}

}  // namespace headroom::cuda
