#include "parallel/predict/rows.h"

#include <utility>

#include "parallel/base/check.h"
#include "parallel/predict/conv_block.h"
#include "parallel/predict/convolution.h"
#include "parallel/predict/excite.h"
#include "parallel/predict/grow.h"
#include "parallel/predict/policies.h"
#include "parallel/predict/resampling.h"

namespace headroom::predict {
namespace {

Map run_pools(const Pass& pass, const Map& y,
              const std::vector<int64_t>& windows) {
  if (pass.derive != Derive::kLean) return chained_pools(pass, y, windows);
  RecomputeOptions options;
  options.output = Cost::kElementwise;
  return recompute(
             pass,
             [windows](const Pass& inside, std::vector<Map> inputs) {
               return std::vector<Map>{
                   chained_pools(inside, inputs.front(), windows)};
             },
             {y}, options)
      .front();
}

Graph::Outcome head_backward(const Pass& pass, const ConvolutionShape& shape,
                             const Map& x) {
  Tape& tape = pass.tape;
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  if (x.wants_gradient()) {
    outcome.inputs.front().memory = pass.allocate_map(x.channels, x.stride);
    tape.touch(input_gradient_scratch(shape, pass.extents));
  }
  outcome.parameters = {
      tape.allocate(shape.out_channels * pass.extents.element_bytes)};
  tape.touch(weight_gradient_bytes(shape, pass.extents));
  outcome.parameters.push_back(tape.allocate(shape.weight_bytes(pass.extents)));
  return outcome;
}

// The same of maps of 16 bits, whose heads are float32
// (worker/model/head_convolution.h).
Graph::Outcome mixed_head_backward(const Pass& pass,
                                   const ConvolutionShape& shape,
                                   const Map& x) {
  Tape& tape = pass.tape;
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  outcome.parameters = {
      tape.allocate(shape.out_channels * pass.extents.parameter_bytes())};
  {
    const Memory rounded = pass.allocate_map(shape.out_channels, x.stride);
    const Memory cast = cast_weight(pass, shape);
    if (x.wants_gradient()) {
      outcome.inputs.front().memory = pass.allocate_map(x.channels, x.stride);
      tape.touch(input_gradient_scratch(shape, pass.extents));
    }
    tape.touch(weight_gradient_bytes(shape, pass.extents));
  }
  outcome.parameters.push_back(weight_gradient(tape, shape, pass.extents));
  return outcome;
}

Memory mixed_head(const Pass& pass, const ConvolutionShape& shape) {
  const Memory rounded =
      pass.allocate_map(shape.out_channels, shape.out_stride);
  {
    const Memory cast = cast_weight(pass, shape);
    pass.tape.touch(forward_scratch(shape, pass.extents));
  }
  return pass.tape.allocate(
      pass.extents.widened().map_bytes(shape.out_channels, shape.out_stride));
}

std::vector<Map> run_detect(const Pass& pass, const ModelRow& row,
                            const std::vector<Map>& inputs) {
  const int64_t channels = row.channels / static_cast<int64_t>(inputs.size());
  std::vector<Map> heads;
  for (const Map& x : inputs) {
    const bool is_mixed = pass.extents.is_mixed();
    // Only a head of 16 bits goes through worker/kernels/cpu/convolution.h,
    // which shows few samples to oneDNN as many; float16 as float32.
    const ConvolutionShape shape = {x.channels, channels, 1,
                                    1,          x.stride, is_mixed};
    Map head = {is_mixed ? mixed_head(pass, shape)
                         : pass.allocate_map(channels, x.stride),
                channels, x.stride};
    if (!is_mixed) pass.tape.touch(forward_scratch(shape, pass.extents));
    const Map plain = {nullptr, x.channels, x.stride, x.node};
    head.node = pass.add({x}, {x.memory}, head.memory->bytes, true,
                         [pass, shape, plain, is_mixed](Gradient gradient) {
                           Graph::Outcome outcome =
                               is_mixed
                                   ? mixed_head_backward(pass, shape, plain)
                                   : head_backward(pass, shape, plain);
                           static_cast<void>(gradient);
                           return outcome;
                         });
    heads.push_back(std::move(head));
  }
  return heads;
}

Map run_step(const Pass& pass, const layers::RowProgram& program,
             const layers::RowProgram::Step& step,
             const std::vector<Map>& inputs) {
  using Operation = layers::RowProgram::Operation;
  const Map& x = inputs.front();
  switch (step.operation) {
    case Operation::kBlock:
      return conv_block(pass, x, program.blocks[step.block]);
    case Operation::kGrow:
      return grow(pass, x, program.blocks[step.block]);
    case Operation::kExcite:
      return excite(pass, x, program.blocks[step.block]);
    case Operation::kPools:
      return run_pools(pass, x, step.windows);
    case Operation::kAdd:
      return add(pass, x, inputs[1]);
    case Operation::kConcat:
      return concatenate(pass, inputs);
    case Operation::kUpsample:
      return upsample(pass, x);
    case Operation::kFold:
    case Operation::kShuffle:
      return rearrange(pass, x, step.output);
    case Operation::kSlice:
      return slice(pass, x, step.output.channels);
  }
  HEADROOM_CHECK(false, "a step of no operation");
}

}  // namespace

std::vector<Map> run_row(const Pass& pass, const ModelRow& row,
                         const std::vector<Map>& inputs) {
  if (row.is_head()) return run_detect(pass, row, inputs);
  const layers::RowProgram& program = *row.program;
  const std::vector<std::vector<int>> released = program.released();
  std::vector<Map> values = inputs;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const layers::RowProgram::Step& step = program.steps[i];
    std::vector<Map> operands;
    for (const int input : step.inputs)
      operands.push_back(values[static_cast<size_t>(input)]);
    for (const int value : released[i])
      values[static_cast<size_t>(value)].memory.reset();
    values.push_back(run_step(pass, program, step, operands));
  }
  return {std::move(values.back())};
}

}  // namespace headroom::predict
