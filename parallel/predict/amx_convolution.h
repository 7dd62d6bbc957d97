// Bounds of the scratch memory of oneDNN's convolutions of bfloat16 with AMX,
// which choose blocks by the size of caches: fitted to what those of yolov5 n
// to x took at 64 to 1,280 pixels, on one thread.
#pragma once

#include <cstdint>

#include "parallel/predict/convolution.h"

namespace headroom::predict::amx {

// `weights`: bytes of the weights in blocks. Bytes as of the functions of the
// same names in convolution.h.
int64_t forward_scratch(const ConvolutionShape& convolution,
                        const MicroBatchShape& shape, int64_t weights);
int64_t input_gradient_scratch(const ConvolutionShape& convolution,
                               const MicroBatchShape& shape, int64_t weights);
int64_t weight_gradient_bytes(const ConvolutionShape& convolution,
                              const MicroBatchShape& shape, int64_t weights);

}  // namespace headroom::predict::amx
