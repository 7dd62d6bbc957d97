// GradientBuffers: an incoming gradient and what it is turned into.
//
// The same memory where nobody else can see it: that saves an allocation, and
// the reading of every cache line before it is overwritten. Autograd hands a
// gradient on to several consumers (an addition sends the same one both ways),
// so reference counts of the tensor and of its memory decide.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom::kernels {

struct GradientBuffers {
  // REQUIRES: `incoming` [N, C, H, W], moved in. A slice of the channels of a
  // channels-last map is read where it lies; any other layout is copied.
  explicit GradientBuffers(at::Tensor incoming);

  at::Tensor source;
  int64_t pixel_stride = 0;  // elements from one pixel of source to the next
  at::Tensor target;         // channels-last; may be source
};

}  // namespace headroom::kernels
