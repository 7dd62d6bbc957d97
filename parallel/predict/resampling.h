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

#include "configs/layers/layer_program.h"
#include "parallel/predict/op_context.h"

namespace headroom::predict {

Map add(const OpContext& context, const Map& a, const Map& b);
Map concatenate(const OpContext& context, const std::vector<Map>& maps);
Map upsample(const OpContext& context, const Map& x);  // by 2

// Folding and shuffling: the same elements in other places.
Map rearrange(const OpContext& context, const Map& x,
              const layers::MapShape& output);
Map slice(const OpContext& context, const Map& x, int64_t channels);

// y, p1(y), p2(p1(y)), …, side by side. Where images are split the rows that
// all poolings reach come first, and each pooling makes as many fewer.
Map chained_pools(const OpContext& context, const Map& y,
                  const std::vector<int64_t>& windows);

}  // namespace headroom::predict
