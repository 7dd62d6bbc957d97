// Convolution: the memory that a library's convolution needs besides its input,
// output and gradients.
//
// On a CPU oneDNN copies the weights into its own blocks, and copies their
// gradient back in backward. For a strided 3x3 convolution it gathers the input
// gradient from a padded copy of a sample. For a bfloat16 weight gradient it
// transposes a sample of the input and of the gradient. With channel groups,
// each group is padded to whole blocks. In float64 LibTorch unfolds the input's
// windows into columns instead. On a card the library's workspace has the size
// that was observed for that shape; 0 if no size was observed yet. The card
// copies all float64 inputs and outputs, and folds 16-bit maps of few channels
// (worker/kernels/cpu/convolution.h).
//
// 16-bit convolutions use copies of float32 weights, and their weight gradients
// are converted to float32 at once.
#pragma once

#include <cstdint>

#include "parallel/predict/op_context.h"

namespace headroom::predict {

struct Convolution {
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t out_stride = 1;  // pixels per cell of the output
  // Whether samples, rows and columns may be rearranged into another shape with
  // as many pixels (worker/kernels/cpu/convolution.h).
  bool may_be_flat = true;
  int64_t groups = 1;

  int64_t weight_bytes(const MicroBatchShape& shape) const {
    return kernel * kernel * in_channels / groups * out_channels *
           shape.element_bytes;
  }
};

// Scratch bytes while the output is computed.
int64_t forward_scratch(const Convolution& convolution,
                        const MicroBatchShape& shape);
// Scratch bytes while the input's gradient is computed.
int64_t input_gradient_scratch(const Convolution& convolution,
                               const MicroBatchShape& shape);
// Bytes of the weight's gradient and its scratch while it is computed.
int64_t weight_gradient_bytes(const Convolution& convolution,
                              const MicroBatchShape& shape);

// The temporary copy of the weight in the maps' type; null if none is made.
Memory cast_weight(const OpContext& context, const Convolution& convolution);
// The weight's gradient in the type of the parameters.
Memory weight_gradient(LiveBuffers& buffers, const Convolution& convolution,
                       const MicroBatchShape& shape);

}  // namespace headroom::predict
