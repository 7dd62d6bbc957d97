// TransposedConv: a transposed convolution whose kernel is its stride, as
// worker/model/convolution_modules.h runs it: a 1x1 convolution to as many
// times the channels as a cell becomes cells, which are then put in their
// places.
//
//   keeps     x
//   backward  the gradient back in its cells, then those of x and of the weight
//
// Threads: one.
#pragma once

#include "configs/layers/layer_program.h"
#include "parallel/predict/op_context.h"

namespace headroom::predict {

Map transposed_conv(const OpContext& context, const Map& x,
                    const layers::LayerProgram::Block& made);

}  // namespace headroom::predict
