// ProgramLayer: a layer that runs a LayerProgram on tensors.
//
// Ownership: owns its modules, whose tensors stay at their addresses.
// Threads: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "configs/layers/layer_program.h"
#include "worker/model/convolution_modules.h"
#include "worker/model/layer.h"

namespace headroom::model {

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
  std::vector<std::unique_ptr<ConvolutionModule>> modules_;  // as its blocks
};

}  // namespace headroom::model
