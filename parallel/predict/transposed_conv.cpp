#include "parallel/predict/operators.h"

#include <utility>

#include "parallel/predict/convolution.h"

namespace headroom::predict {
namespace {

Graph::Outcome backward(const OpContext& context,
                        const ConvolutionShape& convolution, const Map& x,
                        int64_t channels) {
  MemoryTimeline& timeline = context.timeline;
  const MicroBatchShape& shape = context.shape;
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  outcome.parameters = {timeline.allocate(channels * shape.parameter_bytes())};
  {
    const Memory cells =
        context.allocate_map(convolution.out_channels, x.stride);
    const Memory cast = cast_weight(context, convolution);
    const Memory weight = timeline.allocate(convolution.weight_bytes(shape));
    if (x.wants_gradient()) {
      outcome.inputs.front().memory =
          context.allocate_map(x.channels, x.stride);
      timeline.touch(input_gradient_scratch(convolution, shape));
    }
    timeline.touch(weight_gradient_bytes(convolution, shape));
  }
  outcome.parameters.push_back(weight_gradient(timeline, convolution, shape));
  return outcome;
}

}  // namespace

Map transposed_conv(const OpContext& context, const Map& x,
                    const layers::LayerProgram::Block& made) {
  MemoryTimeline& timeline = context.timeline;
  const int64_t cells = made.kernel * made.kernel;
  const ConvolutionShape convolution = {
      x.channels, cells * made.channels, 1, 1, x.stride, true};
  const int64_t stride = x.stride / made.stride;
  Map out = {nullptr, made.channels, stride};
  {
    const Memory grouped =
        context.allocate_map(convolution.out_channels, x.stride);
    {
      const Memory cast = cast_weight(context, convolution);
      const Memory weight =
          timeline.allocate(convolution.weight_bytes(context.shape));
      timeline.touch(forward_scratch(convolution, context.shape));
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
