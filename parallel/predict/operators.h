// The operators of a layer, forward and backward, as far as memory goes. Each
// makes an output map, a node of the graph, and says what the node keeps.
//
// An operation that keeps its inputs until backward has a file of its own here
// (conv_block.cpp, max_pools.cpp); for any other one derived_map() is enough.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/layers/layer_program.h"
#include "parallel/predict/op_context.h"

namespace headroom::predict {

// A convolution with batch norm and activation.
//
//   forward   y = convolution(x), its groups' statistics, the output
//   keeps     x, y, statistics; the rows around x where images are split
//   backward  the output's gradient becomes y's (in place if nobody else has
//             it), then the gradients of x and of the weight
//
// The output can be made again from y and the statistics; for that its affine
// parameters are copied.
Map conv_block(const OpContext& context, const Map& x,
               const layers::LayerProgram::Block& made);

// Squeeze and excitation, as worker/model/convolution_modules.h runs it.
//
//   keeps     x; per sample the means, the squeezed ones and the factors
//   backward  x's gradient beside the output's
//
// The output can be made again from x and the factors.
Map squeeze_excite(const OpContext& context, const Map& x,
                   const layers::LayerProgram::Block& made);

// A transposed convolution whose kernel is its stride, as
// worker/model/convolution_modules.h runs it: a 1x1 convolution to as many
// times the channels as a cell becomes cells, which are then put in their
// places.
//
//   keeps     x
//   backward  the gradient back in its cells, then those of x and of the weight
Map transposed_conv(const OpContext& context, const Map& x,
                    const layers::LayerProgram::Block& made);

// An operation that keeps nothing and whose output can be made again from its
// inputs: adding, joining, moving elements to other places.
Map derived_map(const OpContext& context, const std::vector<Map>& inputs,
                const layers::MapShape& output,
                layers::LayerProgram::InputGradients gradients);

// The backward of an operation that makes its inputs' gradients, of so many
// bytes each, beside a copy of `dense_bytes` where the output's is a slice.
Graph::Backward making_new(MemoryTimeline& timeline, std::vector<int64_t> bytes,
                           int64_t dense_bytes);

// y, p1(y), p2(p1(y)), …, side by side. Where images are split the rows that
// all poolings reach come first, and each pooling makes as many fewer.
//
//   keeps     its input and indices of 8 bytes; on a device bytes alone
Map chained_pools(const OpContext& context, const Map& y,
                  const std::vector<int64_t>& windows);

// Rows above and below together that a convolution fetches from other ranks; 0
// where images are whole.
int64_t rows_around(const MicroBatchShape& shape, int64_t kernel,
                    int64_t stride);

// The `around` rows (above and below together), kept apart from the map.
Memory fetch_halo(const OpContext& context, const Map& map, int64_t around);

// The map with them: a copy.
Memory join_halo(const OpContext& context, const Map& map, int64_t around);

// The map's own part of the joined map's gradient; the rest goes back to its
// owners.
Memory give_back_halo(const OpContext& context, const Map& map, int64_t around);

}  // namespace headroom::predict
