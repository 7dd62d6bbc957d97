// ConvBlock: a convolution with batch norm and activation, forward and
// backward.
//
//   forward   y = convolution(x), its groups' statistics, the output
//   keeps     x, y, statistics; the rows around x where images are split
//   backward  the output's gradient becomes y's (in place if nobody else has
//             it), then the gradients of x and of the weight
//
// The output can be made again from y and the statistics; for that its affine
// parameters are copied.
//
// Threads: one.
#pragma once

#include "configs/layers/layer_program.h"
#include "parallel/predict/op_context.h"

namespace headroom::predict {

Map conv_block(const OpContext& context, const Map& x,
               const layers::LayerProgram::Block& made);

}  // namespace headroom::predict
