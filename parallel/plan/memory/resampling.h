// Resampling: what lies between convolution blocks: addition, concatenation,
// upsampling, pooling.
//
//   addition       keeps nothing; hands one gradient to both sides
//   concatenation  keeps nothing; hands out slices, each of which holds all
//   upsampling     keeps nothing
//   pooling        keeps its input and 8-byte indices
//
// All but pooling can be made again from their inputs.
//
// Threads: one.
#pragma once

#include <vector>

#include "parallel/plan/memory/pass.h"

namespace headroom::memory {

Map add(const Pass& pass, const Map& a, const Map& b);
Map concatenate(const Pass& pass, const std::vector<Map>& maps);
Map upsample(const Pass& pass, const Map& x);  // by 2

// y, p(y), p(p(y)), p(p(p(y))), one after the other, p a 5x5 max-pool. Where
// images are split the rows that all poolings reach come first, and each
// pooling makes as many fewer.
Map concatenated_pools(const Pass& pass, const Map& y);

}  // namespace headroom::memory
