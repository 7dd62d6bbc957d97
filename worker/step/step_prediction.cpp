#include "worker/step/step_prediction.h"

#include <utility>

#include "parallel/base/convolution_workspaces.h"

namespace headroom::step {

StepPrediction::StepPrediction(predict::MemoryRequest request,
                               const collectives::Mesh& mesh,
                               const model::LayerGraph& model)
    : request_(std::move(request)), mesh_(mesh), model_(model) {}

int64_t StepPrediction::predict(const loader::Batch& batch,
                                std::vector<plan::ActivationPolicy> policies) {
  request_.plan.activation_policies = std::move(policies);
  request_.step = step_shape(batch, mesh_, model_);
  request_.workspaces = &convolution_workspaces();
  num_shapes_ = request_.workspaces->num_shapes();
  estimate_ = predict::estimate_rank_memory(request_, mesh_.here);
  return estimate_.total();
}

bool StepPrediction::knew_workspaces() const {
  return convolution_workspaces().num_shapes() == num_shapes_;
}

std::optional<memory::StepEvent> StepPrediction::compare(
    int64_t measured, const activations::CategoryBytes& peaks) {
  const memory::MemoryComparison comparison = {"step", estimate_, measured,
                                               peaks};
  if (!comparison.is_more()) return std::nullopt;
  if (!blamed_.insert(memory::item_to_blame(estimate_, peaks).name).second) {
    return std::nullopt;
  }
  return memory::memory_prediction_event(comparison);
}

}  // namespace headroom::step
