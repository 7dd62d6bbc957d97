#include "parallel/plan/memory/rows.h"

#include <utility>

#include "parallel/base/check.h"
#include "parallel/plan/memory/conv_block.h"
#include "parallel/plan/memory/convolution.h"
#include "parallel/plan/memory/policies.h"
#include "parallel/plan/memory/resampling.h"

namespace headroom::memory {
namespace {

Map run_bottleneck(const Pass& pass, const Map& x, bool shortcut) {
  const Map y =
      conv_block(pass, conv_block(pass, x, x.channels, 1, 1), x.channels, 3, 1);
  return shortcut ? add(pass, x, y) : y;
}

Map run_c3(const Pass& pass, const ModelRow& row, const Map& x) {
  const int64_t hidden = row.channels / 2;
  Map deep = conv_block(pass, x, hidden, 1, 1);
  for (int64_t i = 0; i < row.repeats; ++i)
    deep = run_bottleneck(pass, deep, row.shortcut);
  const std::vector<Map> sides = {deep, conv_block(pass, x, hidden, 1, 1)};
  return conv_block(pass, concatenate(pass, sides), row.channels, 1, 1);
}

Map run_pools(const Pass& pass, const Map& y) {
  if (pass.derive != Derive::kLean) return concatenated_pools(pass, y);
  RecomputeOptions options;
  options.output = Cost::kElementwise;
  return recompute(
             pass,
             [](const Pass& inside, std::vector<Map> inputs) {
               return std::vector<Map>{
                   concatenated_pools(inside, inputs.front())};
             },
             {y}, options)
      .front();
}

Map run_sppf(const Pass& pass, const ModelRow& row, const Map& x) {
  const Map y = conv_block(pass, x, x.channels / 2, 1, 1);
  return conv_block(pass, run_pools(pass, y), row.channels, 1, 1);
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
    const ConvolutionShape shape = {x.channels, channels, 1,
                                    1,          x.stride, false};
    const bool is_mixed = pass.extents.is_mixed();
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

}  // namespace

std::vector<Map> run_row(const Pass& pass, const ModelRow& row,
                         const std::vector<Map>& inputs) {
  const Map& x = inputs.front();
  switch (row.kind) {
    case ModelRow::Kind::kConv:
      return {
          conv_block(pass, x, row.channels, row.kernel, row.stride / x.stride)};
    case ModelRow::Kind::kC3:
      return {run_c3(pass, row, x)};
    case ModelRow::Kind::kSppf:
      return {run_sppf(pass, row, x)};
    case ModelRow::Kind::kUpsample:
      return {upsample(pass, x)};
    case ModelRow::Kind::kConcat:
      return {concatenate(pass, inputs)};
    case ModelRow::Kind::kDetect:
      return run_detect(pass, row, inputs);
  }
  HEADROOM_CHECK(false, "a row of no kind");
}

}  // namespace headroom::memory
