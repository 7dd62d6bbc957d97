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

// SqueezeExcite: squeeze and excitation, as worker/model/convolution_modules.h
// runs it.
//
//   keeps     x; per sample the means, the squeezed ones and the factors
//   backward  x's gradient beside the output's
//
// The output can be made again from x and the factors.
//
// Threads: one.

Map squeeze_excite(const OpContext& context, const Map& x,
                   const layers::LayerProgram::Block& made);

// TransposedConv: a transposed convolution whose kernel is its stride, as
// worker/model/convolution_modules.h runs it: a 1x1 convolution to as many
// times the channels as a cell becomes cells, which are then put in their
// places.
//
//   keeps     x
//   backward  the gradient back in its cells, then those of x and of the weight
//
// Threads: one.

Map transposed_conv(const OpContext& context, const Map& x,
                    const layers::LayerProgram::Block& made);

}  // namespace headroom::predict
