// layer_factory builds a Layer from one layer of the model table.
// configs/layers/layer_modules.h defines what a module consists of.
//
// Errors: Error with the table's file:line:column for an unknown module, wrong
// arguments, or maps whose shapes do not match.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "configs/layers/layer_program.h"
#include "configs/layers/model_table.h"
#include "worker/model/convolution_modules.h"
#include "worker/model/detect.h"
#include "worker/model/layer.h"
#include "worker/model/model_state.h"

namespace headroom::model {

// ProgramLayer: a layer that runs a LayerProgram on tensors. It owns its
// modules, whose tensors' addresses do not change.
class ProgramLayer final : public Layer {
 public:
  // `prefix`: the layer's name in the state, "model.4.".
  ProgramLayer(ModelState& state, const std::string& prefix,
               layers::LayerProgram program);

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const StepContext& context) override;
  layers::LayerInside inside() const override { return program_.inside(); }

 private:
  at::Tensor run(const layers::LayerProgram::Step& step,
                 const std::vector<at::Tensor>& inputs,
                 const StepContext& context);

  const layers::LayerProgram program_;
  const std::vector<std::vector<int>> released_;
  // One for each element of program_.blocks.
  std::vector<std::unique_ptr<ConvolutionModule>> modules_;
};

struct BuiltLayer {
  std::unique_ptr<Layer> layer;
  layers::MapShape output;        // unset for the detection head
  DetectionHead* head = nullptr;  // the layer itself if it is the head
};

// Builds table.layers[index], of a table with branches, for inputs of these
// shapes.
BuiltLayer build_layer(const layers::ModelTable& table, std::size_t index,
                       const std::vector<layers::MapShape>& inputs,
                       int64_t num_classes, ModelState& state);

}  // namespace headroom::model
