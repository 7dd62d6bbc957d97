#include "worker/recompute_runner.h"

#include <c10/core/GradMode.h>

#include <memory>

#include "parallel/activations/recomputation.h"
#include "worker/model/row_tape.h"

namespace headroom {

std::vector<at::Tensor> RecomputeRunner::run(
    int64_t, Row& row, const std::vector<at::Tensor>& inputs,
    const StepContext& context) {
  if (!c10::GradMode::is_enabled()) return row.forward(inputs, context);
  const auto tape = std::make_shared<RowTape>();
  return recompute(
      [&row, context, tape](const std::vector<at::Tensor>& given, Pass pass) {
        StepContext inside = context;
        inside.runner = nullptr;
        inside.tape = tape.get();
        if (pass == Pass::kAgain) {
          tape->start_replay();
          inside.batch_norm_sums = at::Tensor();
        }
        return row.forward(given, inside);
      },
      inputs);
}

}  // namespace headroom
