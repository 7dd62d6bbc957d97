// Resampling: what lies between convolution blocks: addition, concatenation,
// upsampling, rearranging, slicing, pooling.
//
//   addition       keeps nothing; hands one gradient to both sides
//   concatenation  keeps nothing; hands out slices, each of which holds all
//   upsampling     keeps nothing
//   rearranging    keeps nothing
//   slicing        keeps nothing; its gradient is as wide as what it is of
//   pooling        keeps its input and 8-byte indices
//
// All but pooling can be made again from their inputs.
//
// Threads: one.
#pragma once

#include <vector>

#include "configs/layers/row_program.h"
#include "parallel/predict/pass.h"

namespace headroom::predict {

Map add(const Pass& pass, const Map& a, const Map& b);
Map concatenate(const Pass& pass, const std::vector<Map>& maps);
Map upsample(const Pass& pass, const Map& x);  // by 2

// Folding and shuffling: the same elements in other places.
Map rearrange(const Pass& pass, const Map& x, const layers::MapShape& output);
Map slice(const Pass& pass, const Map& x, int64_t channels);

// y, p1(y), p2(p1(y)), …, side by side. Where images are split the rows that
// all poolings reach come first, and each pooling makes as many fewer.
Map chained_pools(const Pass& pass, const Map& y,
                  const std::vector<int64_t>& windows);

}  // namespace headroom::predict
