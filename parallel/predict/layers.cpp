#include "parallel/predict/layers.h"

#include <utility>

#include "parallel/base/check.h"
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

std::vector<Map> run_detect(const OpContext& context,
                            const layers::LayerCost& layer,
                            const std::vector<Map>& inputs) {
  // The branches of a head without anchors are layers of their own.
  if (layer.parameters == 0) return inputs;
  const int64_t channels = layer.channels / static_cast<int64_t>(inputs.size());
  std::vector<Map> heads;
  for (const Map& x : inputs) {
    heads.push_back(output_conv(context, x, channels));
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
