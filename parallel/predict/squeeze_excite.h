// SqueezeExcite: squeeze and excitation, as worker/model/squeeze_excite.h runs
// it.
//
//   keeps     x; per sample the means, the squeezed ones and the factors
//   backward  x's gradient beside the output's
//
// The output can be made again from x and the factors.
//
// Threads: one.
#pragma once

#include "configs/layers/layer_program.h"
#include "parallel/predict/op_context.h"

namespace headroom::predict {

Map squeeze_excite(const OpContext& context, const Map& x,
                   const layers::LayerProgram::Block& made);

}  // namespace headroom::predict
