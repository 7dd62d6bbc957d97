// RecomputeRunner: keeps only the inputs of every row and runs the row once
// more in backward, without repeating a collective: what the row received from
// other ranks is replayed from its tape.
//
// Threads: the thread that runs the step.
#pragma once

#include "worker/model/row_runner.h"

namespace headroom {

class RecomputeRunner final : public RowRunner {
 public:
  std::vector<at::Tensor> run(int64_t index, Row& row,
                              const std::vector<at::Tensor>& inputs,
                              const StepContext& context) override;
};

}  // namespace headroom
