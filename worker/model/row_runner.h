// RowRunner: how a row is run, where it is not simply called.
//
// A memory policy or a sharding of parameters acts around whole rows, without
// the rows or the graph knowing: StepContext hands in a runner, and the graph
// runs each row through it. Runners may be stacked; the innermost calls
// row.forward(inputs, context).
//
// Threads: the thread that runs the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/model/row.h"

namespace headroom::model {

class RowRunner {
 public:
  virtual ~RowRunner() = default;

  // The outputs of row number `row` of the model table. Backward runs later
  // and may be told of through nodes added to the outputs.
  virtual std::vector<at::Tensor> run(int64_t index, Row& row,
                                      const std::vector<at::Tensor>& inputs,
                                      const StepContext& context) = 0;
};

}  // namespace headroom::model
