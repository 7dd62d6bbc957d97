// Simulates a layer's operators, forward and backward. Each one makes an output
// map and a graph node that lists the buffers it keeps.
//
// Operations that keep their inputs until backward have functions of their own
// (blocks.cpp, conv_block.cpp, max_pools.cpp); for others derived_map()
// suffices.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/layers/layer_program.h"
#include "parallel/predict/op_context.h"

namespace headroom::predict {

// kConv: a convolution with batch norm and activation.
//
//   forward   y = convolution(x), its groups' statistics, the output
//   keeps     x, y, statistics; the rows around x if images are split
//   backward  computes y's gradient from the output's (in place if nothing else
//             holds that), then the gradients of x and of the weight
//
// The output can be recomputed from y, the statistics and a copy of the affine
// parameters.
Map conv_block(const OpContext& context, const Map& x,
               const layers::LayerProgram::Block& made);

// kOutputConv, and the convolution of each level of Detect.
//
//   keeps     x
//   backward  computes the gradients of x, weight and bias
Map output_conv(const OpContext& context, const Map& x, int64_t channels);

// A block of any kind.
Map run_block(const OpContext& context, const Map& x,
              const layers::LayerProgram::Block& made);

// An operation that saves nothing and whose output can be recomputed from its
// inputs: addition, concatenation, rearrangement.
Map derived_map(const OpContext& context, const std::vector<Map>& inputs,
                const layers::MapShape& output,
                layers::LayerProgram::InputGradients gradients);

// A backward that allocates input gradients of these `bytes`, and a copy of
// `dense_bytes` if the output's gradient is a view.
Graph::Backward making_new(LiveBuffers& buffers, std::vector<int64_t> bytes,
                           int64_t dense_bytes);

// Concatenates y, p1(y), p2(p1(y)), … With split images, the halo rows for all
// poolings are fetched first, and each pooling uses up some of them.
//
//   keeps     the input and 8-byte indices; on a device only 1-byte indices
Map chained_pools(const OpContext& context, const Map& y,
                  const std::vector<int64_t>& windows);

// Rows, above and below together, that a convolution fetches from other ranks;
// 0 for whole images.
int64_t rows_around(const MicroBatchShape& shape, int64_t kernel,
                    int64_t stride);

// Receives `around` rows (above and below together) into a separate buffer.
Memory fetch_halo(const OpContext& context, const Map& map, int64_t around);

// Copies the map and its halo rows into one buffer.
Memory join_halo(const OpContext& context, const Map& map, int64_t around);

// Sends the gradients of the halo rows to their owners and returns the gradient
// of the rank's own rows.
Memory give_back_halo(const OpContext& context, const Map& map, int64_t around);

}  // namespace headroom::predict
