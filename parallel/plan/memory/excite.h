// Excite: squeeze and excitation, as worker/model/excite.h runs it.
//
//   keeps     x; per sample the means, the squeezed ones and the factors
//   backward  x's gradient beside the output's
//
// The output can be made again from x and the factors.
//
// Threads: one.
#pragma once

#include "parallel/base/row_program.h"
#include "parallel/plan/memory/pass.h"

namespace headroom::memory {

Map excite(const Pass& pass, const Map& x, const RowProgram::Block& made);

}  // namespace headroom::memory
