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

std::vector<Map> run_detect(const Pass& pass, const ModelRow& row,
                            const std::vector<Map>& inputs) {
  const int64_t channels = row.channels / static_cast<int64_t>(inputs.size());
  std::vector<Map> heads;
  for (const Map& x : inputs) {
    const ConvolutionShape shape = {x.channels, channels, 1,
                                    1,          x.stride, false};
    Map head = {pass.allocate_map(channels, x.stride), channels, x.stride};
    pass.tape.touch(forward_scratch(shape, pass.extents));
    const Map plain = {nullptr, x.channels, x.stride, x.node};
    head.node = pass.add({x}, {x.memory}, head.memory->bytes, true,
                         [pass, shape, plain](Gradient gradient) {
                           Graph::Outcome outcome =
                               head_backward(pass, shape, plain);
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
