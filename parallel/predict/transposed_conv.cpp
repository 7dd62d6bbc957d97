#include "parallel/predict/transposed_conv.h"

#include <utility>

#include "parallel/predict/convolution.h"

namespace headroom::predict {
namespace {

Graph::Outcome backward(const OpContext& context, const ConvolutionShape& shape,
                        const Map& x, int64_t channels) {
  MemoryTimeline& timeline = context.timeline;
  const MicroBatchShape& extents = context.extents;
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  outcome.parameters = {
      timeline.allocate(channels * extents.parameter_bytes())};
  {
    const Memory cells = context.allocate_map(shape.out_channels, x.stride);
    const Memory cast = cast_weight(context, shape);
    const Memory weight = timeline.allocate(shape.weight_bytes(extents));
    if (x.wants_gradient()) {
      outcome.inputs.front().memory =
          context.allocate_map(x.channels, x.stride);
      timeline.touch(input_gradient_scratch(shape, extents));
    }
    timeline.touch(weight_gradient_bytes(shape, extents));
  }
  outcome.parameters.push_back(weight_gradient(timeline, shape, extents));
  return outcome;
}

}  // namespace

Map transposed_conv(const OpContext& context, const Map& x,
                    const layers::LayerProgram::Block& made) {
  MemoryTimeline& timeline = context.timeline;
  const int64_t cells = made.kernel * made.kernel;
  const ConvolutionShape shape = {
      x.channels, cells * made.channels, 1, 1, x.stride, true};
  const int64_t stride = x.stride / made.stride;
  Map out = {nullptr, made.channels, stride};
  {
    const Memory grouped = context.allocate_map(shape.out_channels, x.stride);
    {
      const Memory cast = cast_weight(context, shape);
      const Memory weight =
          timeline.allocate(shape.weight_bytes(context.extents));
      timeline.touch(forward_scratch(shape, context.extents));
    }
    out.memory = context.allocate_map(made.channels, stride);
  }
  OpContext later = context;
  later.replay = nullptr;
  const Map plain = {nullptr, x.channels, x.stride, x.node};
  out.node = context.add({x}, {x.memory}, out.memory->bytes, true,
                         [later, shape, plain, made](Gradient gradient) {
                           Graph::Outcome outcome =
                               backward(later, shape, plain, made.channels);
                           static_cast<void>(gradient);
                           return outcome;
                         });
  return out;
}

}  // namespace headroom::predict
