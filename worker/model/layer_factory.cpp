#include "worker/model/layer_factory.h"

#include <utility>

#include "configs/layers/detect_branches.h"
#include "configs/layers/layer_modules.h"
#include "configs/layers/table_layer.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/model/place_head.h"
#include "worker/model/resampling.h"

namespace headroom::model {

ProgramLayer::ProgramLayer(ModelState& state, const std::string& prefix,
                           layers::LayerProgram program)
    : program_(std::move(program)), released_(program_.released()) {
  for (const layers::LayerProgram::Block& block : program_.blocks) {
    modules_.push_back(make_module(state, prefix + block.name, block));
  }
}

std::vector<at::Tensor> ProgramLayer::forward(
    const std::vector<at::Tensor>& inputs, const StepContext& context) {
  HEADROOM_CHECK(
      inputs.size() == program_.inputs.size(),
      cat(inputs.size(), " inputs to a layer of ", program_.inputs.size()));
  std::vector<at::Tensor> values = inputs;
  for (size_t i = 0; i < program_.steps.size(); ++i) {
    const layers::LayerProgram::Step& step = program_.steps[i];
    std::vector<at::Tensor> operands;
    for (const int input : step.inputs)
      operands.push_back(values[static_cast<size_t>(input)]);
    for (const int value : released_[i])
      values[static_cast<size_t>(value)].reset();
    values.push_back(run(step, operands, context));
  }
  return {std::move(values.back())};
}

at::Tensor ProgramLayer::run(const layers::LayerProgram::Step& step,
                             const std::vector<at::Tensor>& inputs,
                             const StepContext& context) {
  using Operation = layers::LayerProgram::Operation;
  const at::Tensor& x = inputs.front();
  switch (step.operation) {
    case Operation::kBlock:
      return modules_[*step.block]->apply(x, context);
    case Operation::kPools:
      return chained_pools(x, step.windows, context);
    case Operation::kAdd:
      return added_maps(x, inputs[1], context);
    case Operation::kConcat:
      return concatenated_maps(inputs, context);
    case Operation::kUpsample:
      return upsampled_map(x, context);
    case Operation::kFold:
      return folded_map(x, context);
    case Operation::kSlice:
      return sliced_map(x, step.first_channel, step.output.channels, context);
    case Operation::kShuffle:
      return shuffled_map(x, step.groups, context);
  }
  HEADROOM_CHECK(false, "a step of no operation");
}

BuiltLayer build_layer(const layers::ModelTable& table, std::size_t index,
                       const std::vector<layers::MapShape>& inputs,
                       int64_t num_classes, ModelState& state) {
  const std::string prefix = layers::state_prefix(table, index);
  if (table.layers[index].module == layers::kDetectModule) {
    layers::check_detect(table, index, inputs, num_classes);
    std::unique_ptr<DetectionHead> detect;
    if (layers::has_anchors(table)) {
      detect = std::make_unique<Detect>(state, prefix, inputs, table.anchors,
                                        num_classes);
    } else {
      detect = std::make_unique<PlaceHead>(state, prefix, inputs, num_classes);
    }
    DetectionHead* const head = detect.get();
    return {std::move(detect), {}, head};
  }
  layers::LayerProgram program =
      layers::layer_program(table, index, inputs, num_classes);
  const layers::MapShape output = program.output();
  return {std::make_unique<ProgramLayer>(state, prefix, std::move(program)),
          output};
}

}  // namespace headroom::model
