// Grow: a transposed convolution whose kernel is its stride, as
// worker/model/grow.h runs it: a 1x1 convolution to as many times the channels
// as a cell becomes cells, which are then put in their places.
//
//   keeps     x
//   backward  the gradient back in its cells, then those of x and of the weight
//
// Threads: one.
#pragma once

#include "configs/layers/row_program.h"
#include "parallel/predict/pass.h"

namespace headroom::predict {

Map grow(const Pass& pass, const Map& x, const layers::RowProgram::Block& made);

}  // namespace headroom::predict
