// Row: one line of the model table, ready to run.
//
// A row is handed its inputs and a context and returns its outputs; it never
// looks at other rows, ranks or files. All but the detection head take maps
// [N, C, H, W] in channels-last memory and return one; N may be 0.
//
// Ownership: owns its tensors, which stay at their addresses.
// Threads: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "configs/layers/row_program.h"
#include "worker/model/step_context.h"

namespace headroom::model {

class Row {
 public:
  Row() = default;
  virtual ~Row() = default;
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  virtual std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                          const StepContext& context) = 0;
  virtual layers::RowInside inside() const {
    return layers::RowInside::kSeveralMaps;
  }
};

}  // namespace headroom::model
