// Excite: squeeze and excitation, as worker/model/excite.h runs it.
//
//   keeps     x; per sample the means, the squeezed ones and the factors
//   backward  x's gradient beside the output's
//
// The output can be made again from x and the factors.
//
// Threads: one.
#pragma once

#include "configs/layers/row_program.h"
#include "parallel/predict/pass.h"

namespace headroom::predict {

Map excite(const Pass& pass, const Map& x,
           const layers::RowProgram::Block& made);

}  // namespace headroom::predict
