#include "parallel/predict/operators.h"

#include <utility>

#include "parallel/predict/convolution.h"

namespace headroom::predict {
namespace {

Graph::Outcome backward(const OpContext& context,
                        const Convolution& convolution, const Map& x,
                        int64_t channels) {
  LiveBuffers& buffers = context.buffers;
  const MicroBatchShape& shape = context.shape;
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  outcome.parameters = {buffers.allocate(channels * shape.parameter_bytes())};
  {
    const Memory cells =
        context.allocate_map(convolution.out_channels, x.stride);
    const Memory cast = cast_weight(context, convolution);
    const Memory weight = buffers.allocate(convolution.weight_bytes(shape));
    if (x.wants_gradient()) {
      outcome.inputs.front().memory =
          context.allocate_map(x.channels, x.stride);
      buffers.touch(input_gradient_scratch(convolution, shape));
    }
    buffers.touch(weight_gradient_bytes(convolution, shape));
  }
  outcome.parameters.push_back(weight_gradient(buffers, convolution, shape));
  return outcome;
}

}  // namespace

Map transposed_conv(const OpContext& context, const Map& x,
                    const layers::LayerProgram::Block& made) {
  LiveBuffers& buffers = context.buffers;
  const int64_t cells = made.kernel * made.kernel;
  const Convolution convolution = {
      x.channels, cells * made.channels, 1, 1, x.stride, true};
  const int64_t stride = x.stride / made.stride;
  Map out = {nullptr, made.channels, stride};
  {
    const Memory grouped =
        context.allocate_map(convolution.out_channels, x.stride);
    {
      const Memory cast = cast_weight(context, convolution);
      const Memory weight =
          buffers.allocate(convolution.weight_bytes(context.shape));
      buffers.touch(forward_scratch(convolution, context.shape));
    }
    out.memory = context.allocate_map(made.channels, stride);
  }
  out.node =
      context.add({x}, {x.memory}, out.memory->bytes, true,
                  [later = context.in_backward(), convolution,
                   plain = x.without_memory(), made](const Gradient&) {
                    return backward(later, convolution, plain, made.channels);
                  });
  return out;
}

}  // namespace headroom::predict
