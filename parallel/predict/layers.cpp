#include "parallel/predict/layers.h"

#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/device_scratch.h"
#include "parallel/predict/convolution.h"
#include "parallel/predict/operators.h"
#include "parallel/predict/policies.h"

namespace headroom::predict {
namespace {

Map run_pools(const OpContext& context, const Map& y,
              const std::vector<int64_t>& windows) {
  if (context.derive != Derive::kLean)
    return chained_pools(context, y, windows);
  RecomputeOptions options;
  options.output = Cost::kElementwise;
  return recompute(
             context,
             [windows](const OpContext& inside, std::vector<Map> inputs) {
               return std::vector<Map>{
                   chained_pools(inside, inputs.front(), windows)};
             },
             {y}, options)
      .front();
}

Graph::Outcome head_backward(const OpContext& context,
                             const Convolution& convolution, const Map& x) {
  LiveBuffers& buffers = context.buffers;
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  if (x.wants_gradient()) {
    outcome.inputs.front().memory = context.allocate_map(x.channels, x.stride);
    buffers.touch(input_gradient_scratch(convolution, context.shape));
  }
  outcome.parameters = {
      buffers.allocate(convolution.out_channels * context.shape.element_bytes)};
  buffers.touch(weight_gradient_bytes(convolution, context.shape));
  outcome.parameters.push_back(
      buffers.allocate(convolution.weight_bytes(context.shape)));
  return outcome;
}

// The copy of a head's weight padded with channels of zeros.
Memory filled_weight(const OpContext& context, const Convolution& convolution,
                     int64_t channels) {
  return convolution.out_channels == channels
             ? nullptr
             : context.buffers.allocate(
                   convolution.weight_bytes(context.shape));
}

// The head's backward for 16-bit maps; the head's output is float32
// (worker/model/detect.h).
Graph::Outcome mixed_head_backward(const OpContext& context,
                                   const Convolution& convolution,
                                   int64_t channels, const Map& x) {
  LiveBuffers& buffers = context.buffers;
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  outcome.parameters = {buffers.allocate(convolution.out_channels *
                                         context.shape.parameter_bytes())};
  {
    // A device's loss writes a gradient that is rounded already.
    const Memory rounded =
        context.shape.on_device
            ? nullptr
            : context.allocate_map(convolution.out_channels, x.stride);
    const Memory cast = cast_weight(context, convolution);
    const Memory filled = filled_weight(context, convolution, channels);
    if (x.wants_gradient()) {
      outcome.inputs.front().memory =
          context.allocate_map(x.channels, x.stride);
      buffers.touch(input_gradient_scratch(convolution, context.shape));
    }
    buffers.touch(weight_gradient_bytes(convolution, context.shape));
  }
  outcome.parameters.push_back(
      weight_gradient(buffers, convolution, context.shape));
  return outcome;
}

// The head's forward for 16-bit maps; its convolution may be padded.
Memory mixed_head(const OpContext& context, const Convolution& convolution,
                  int64_t channels) {
  const Memory rounded =
      context.allocate_map(convolution.out_channels, convolution.out_stride);
  {
    const Memory cast = cast_weight(context, convolution);
    const Memory filled = filled_weight(context, convolution, channels);
    context.buffers.touch(forward_scratch(convolution, context.shape));
  }
  return context.buffers.allocate(
      context.shape.widened().map_bytes(channels, convolution.out_stride));
}

std::vector<Map> run_detect(const OpContext& context,
                            const layers::LayerCost& layer,
                            const std::vector<Map>& inputs) {
  const int64_t channels = layer.channels / static_cast<int64_t>(inputs.size());
  std::vector<Map> heads;
  for (const Map& x : inputs) {
    const bool is_mixed = context.shape.is_mixed();
    // Only 16-bit heads use worker/kernels/cpu/convolution.h, which reshapes
    // small batches for oneDNN and computes float16 as float32.
    const int64_t computed = is_mixed && context.shape.on_device
                                 ? filled_channels(channels)
                                 : channels;
    const Convolution convolution = {x.channels, computed, 1,
                                     1,          x.stride, is_mixed};
    Map head = {is_mixed ? mixed_head(context, convolution, channels)
                         : context.allocate_map(channels, x.stride),
                channels, x.stride};
    if (!is_mixed)
      context.buffers.touch(forward_scratch(convolution, context.shape));
    const Map plain = x.without_memory();
    head.node = context.add(
        {x}, {x.memory}, head.memory->bytes, true,
        [context, convolution, channels, plain, is_mixed](Gradient gradient) {
          Graph::Outcome outcome =
              is_mixed
                  ? mixed_head_backward(context, convolution, channels, plain)
                  : head_backward(context, convolution, plain);
          static_cast<void>(gradient);
          return outcome;
        });
    heads.push_back(std::move(head));
  }
  return heads;
}

Map run_step(const OpContext& context, const layers::LayerProgram& program,
             const layers::LayerProgram::Step& step,
             const std::vector<Map>& inputs) {
  if (!step.keeps_inputs()) {
    return derived_map(context, inputs, step.output,
                       step.facts.input_gradients);
  }
  if (step.block)
    return run_block(context, inputs.front(), program.block_of(step));
  HEADROOM_CHECK(step.operation == layers::LayerProgram::Operation::kPools,
                 "an operation that keeps its inputs needs a function of its "
                 "own here");
  return run_pools(context, inputs.front(), step.windows);
}

}  // namespace

std::vector<Map> run_layer(const OpContext& context,
                           const layers::LayerCost& layer,
                           const std::vector<Map>& inputs) {
  if (layer.is_head()) return run_detect(context, layer, inputs);
  const layers::LayerProgram& program = *layer.program;
  const std::vector<std::vector<int>> released = program.released();
  std::vector<Map> values = inputs;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const layers::LayerProgram::Step& step = program.steps[i];
    std::vector<Map> operands;
    for (const int input : step.inputs)
      operands.push_back(values[static_cast<size_t>(input)]);
    for (const int value : released[i])
      values[static_cast<size_t>(value)].memory.reset();
    values.push_back(run_step(context, program, step, operands));
  }
  return {std::move(values.back())};
}

}  // namespace headroom::predict
