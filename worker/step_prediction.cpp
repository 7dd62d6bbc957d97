#include "worker/step_prediction.h"

#include <utility>

#include "parallel/base/convolution_workspaces.h"

namespace headroom {

StepPrediction::StepPrediction(MemoryRequest request, const Mesh& mesh,
                               const LayerGraph& model)
    : request_(std::move(request)), mesh_(mesh), model_(model) {}

int64_t StepPrediction::predict(const Batch& batch,
                                std::vector<ActivationPolicy> policies) {
  request_.plan.activation_policies = std::move(policies);
  request_.step = step_shape(batch, mesh_, model_);
  request_.workspaces = &convolution_workspaces();
  num_shapes_ = request_.workspaces->num_shapes();
  estimate_ = estimate_rank_memory(request_, mesh_.here);
  return estimate_.total();
}

bool StepPrediction::knew_workspaces() const {
  return convolution_workspaces().num_shapes() == num_shapes_;
}

std::optional<StepEvent> StepPrediction::compare(int64_t measured,
                                                 const CategoryBytes& peaks) {
  const MemoryComparison comparison = {"step", estimate_, measured, peaks};
  if (!comparison.is_more()) return std::nullopt;
  if (!blamed_.insert(item_to_blame(estimate_, peaks).name).second) {
    return std::nullopt;
  }
  return memory_prediction_event(comparison);
}

}  // namespace headroom
