// Upper bounds for the scratch memory of oneDNN's bfloat16 convolutions with
// AMX. oneDNN chooses block sizes by the CPU caches, so the bounds are fitted
// to measurements of yolov5 n to x at 64 to 1,280 pixels on one thread.
#pragma once

#include <cstdint>

#include "parallel/predict/convolution.h"

namespace headroom::predict::amx {

// `weights`: bytes of the weights in oneDNN's blocked form. convolution.h
// describes the results of the functions with the same names.
int64_t forward_scratch(const Convolution& convolution,
                        const MicroBatchShape& shape, int64_t weights);
int64_t input_gradient_scratch(const Convolution& convolution,
                               const MicroBatchShape& shape, int64_t weights);
int64_t weight_gradient_bytes(const Convolution& convolution,
                              const MicroBatchShape& shape, int64_t weights);

}  // namespace headroom::predict::amx
