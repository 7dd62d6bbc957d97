// Convolution: what a library's convolution takes beside its input, output and
// gradients.
//
// oneDNN reorders weights into blocks of its own, and in backward their
// gradient back again; a strided 3x3 convolution's input gradient is gathered
// from a padded copy of a sample. A bfloat16 weight gradient turns a sample of
// the input and of the gradient round. In float64 LibTorch unfolds the input's
// windows into columns instead. Where channels form groups, each group's fill
// blocks of their own. A card's library takes what it was observed to take for
// that shape, its workspace; nothing is known of it before. For float64 all
// that it reads and makes is copied, and of 16 bits a map of few channels is
// folded (worker/kernels/cpu/convolution.h).
//
// Weights of convolutions of 16 bits are copies of float32 ones, and their
// gradients become float32 at once.
#pragma once

#include <cstdint>

#include "parallel/predict/op_context.h"

namespace headroom::predict {

struct ConvolutionShape {
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t out_stride = 1;  // pixels per cell of the output
  // Its samples, rows and columns may be taken for pixels of another shape
  // (worker/kernels/cpu/convolution.h).
  bool may_be_flat = true;
  int64_t groups = 1;

  int64_t weight_bytes(const MicroBatchShape& shape) const {
    return kernel * kernel * in_channels / groups * out_channels *
           shape.element_bytes;
  }
};

// Bytes beside the output while it is computed.
int64_t forward_scratch(const ConvolutionShape& convolution,
                        const MicroBatchShape& shape);
// Bytes beside the input's gradient while that is computed.
int64_t input_gradient_scratch(const ConvolutionShape& convolution,
                               const MicroBatchShape& shape);
// Bytes beside both gradients while the weight's is computed; its own included.
int64_t weight_gradient_bytes(const ConvolutionShape& convolution,
                              const MicroBatchShape& shape);

// The weight in the maps' type where it is made for the moment, else null.
Memory cast_weight(const OpContext& context,
                   const ConvolutionShape& convolution);
// The computed gradient in the form in which it is added to the parameters'.
Memory weight_gradient(MemoryTimeline& timeline,
                       const ConvolutionShape& convolution,
                       const MicroBatchShape& shape);

}  // namespace headroom::predict
