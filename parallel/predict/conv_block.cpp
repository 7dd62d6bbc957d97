#include "parallel/predict/operators.h"

#include <utility>

#include "parallel/predict/convolution.h"

namespace headroom::predict {
namespace {

struct Block {
  Convolution convolution;
  int64_t around = 0;  // halo rows above and below together
  Map x;               // the input map's shape and node; memory is null
  int64_t output_bytes = 0;
  int64_t norm_bytes = 0;  // bytes of one parameter per channel
};

Graph::Outcome backward(const OpContext& context, const Block& block,
                        Gradient gradient) {
  LiveBuffers& buffers = context.buffers;
  const MicroBatchShape& shape = context.shape;
  Graph::Outcome outcome;
  Memory dy = own(buffers, gradient, block.output_bytes);
  gradient = {};
  outcome.parameters = {buffers.allocate(block.norm_bytes),
                        buffers.allocate(block.norm_bytes)};
  Memory joined;
  if (block.around > 0) joined = join_halo(context, block.x, block.around);
  Memory dx;
  if (block.x.wants_gradient()) {
    dx = buffers.allocate(joined != nullptr ? joined->bytes
                                            : context.bytes_of(block.x));
    buffers.touch(input_gradient_scratch(block.convolution, shape));
  }
  const Memory cast = cast_weight(context, block.convolution);
  buffers.touch(weight_gradient_bytes(block.convolution, shape));
  if (!shape.adds_gradients) {
    outcome.parameters.push_back(
        weight_gradient(buffers, block.convolution, shape));
  }
  joined.reset();
  if (block.around > 0 && dx != nullptr) {
    Memory cut = give_back_halo(context, block.x, block.around);
    dx = std::move(cut);
  }
  outcome.inputs = {{std::move(dx), false}};
  return outcome;
}

void note_derivation(const OpContext& context, const Map& out, const Memory& y,
                     const Memory& statistics, int64_t norm_bytes) {
  if (context.derive == Derive::kNothing) return;
  LiveBuffers& buffers = context.buffers;
  set_derivation(
      out.memory, {y, statistics},
      [&buffers, bytes = out.memory->bytes,
       affine = buffers.allocate(2 * norm_bytes)](const std::vector<Memory>&) {
        return buffers.allocate(bytes);
      });
}

}  // namespace

Map conv_block(const OpContext& context, const Map& x,
               const layers::LayerProgram::Block& made) {
  const int64_t channels = made.channels;
  const int64_t stride = made.stride;
  LiveBuffers& buffers = context.buffers;
  const MicroBatchShape& shape = context.shape;
  Block block;
  block.convolution = {x.channels,        channels, made.kernel, stride,
                       x.stride * stride, true,     made.groups};
  block.around = rows_around(shape, made.kernel, stride);
  block.x = x.without_memory();
  block.norm_bytes = channels * shape.parameter_bytes();

  Memory halo, joined;
  if (block.around > 0) {
    halo = fetch_halo(context, x, block.around);
    joined = join_halo(context, x, block.around);
  }
  const Memory y = context.allocate_map(channels, x.stride * stride);
  {
    const Memory cast = cast_weight(context, block.convolution);
    buffers.touch(forward_scratch(block.convolution, shape));
  }
  joined.reset();
  const auto count = [&] {
    return buffers.allocate(2 * shape.groups * channels * kDoubleBytes);
  };
  const Memory statistics =
      context.replay != nullptr ? context.replay->once(count) : count();
  Map out = {context.allocate_map(channels, x.stride * stride), channels,
             x.stride * stride};
  note_derivation(context, out, y, statistics, block.norm_bytes);
  block.output_bytes = out.memory->bytes;

  std::vector<Memory> saved = {x.memory, y, statistics};
  if (halo != nullptr) saved.push_back(halo);
  out.node =
      context.add({x}, saved, block.output_bytes, true,
                  [later = context.in_backward(), block](Gradient given) {
                    return backward(later, block, std::move(given));
                  });
  return out;
}

}  // namespace headroom::predict
