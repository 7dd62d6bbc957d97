// ProgramRow: a row that runs a RowProgram on tensors.
//
// Ownership: owns its modules, whose tensors stay at their addresses.
// Threads: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "configs/layers/row_program.h"
#include "worker/model/convolution_modules.h"
#include "worker/model/row.h"

namespace headroom::model {

class ProgramRow final : public Row {
 public:
  // `prefix`: the row's name in the state, "model.4.".
  ProgramRow(ModelState& state, const std::string& prefix,
             layers::RowProgram program);

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const StepContext& context) override;
  layers::RowInside inside() const override { return program_.inside(); }

 private:
  at::Tensor run(const layers::RowProgram::Step& step,
                 const std::vector<at::Tensor>& inputs,
                 const StepContext& context);

  const layers::RowProgram program_;
  const std::vector<std::vector<int>> released_;
  std::vector<std::unique_ptr<ConvolutionModule>> modules_;  // as its blocks
};

}  // namespace headroom::model
