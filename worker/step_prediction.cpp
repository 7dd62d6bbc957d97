#include "worker/step_prediction.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "parallel/base/units.h"

namespace headroom {

MemoryItem item_to_blame(const MemoryEstimate& estimate,
                         const CategoryBytes& peaks) {
  const auto measured = [&](MemoryCategory category) {
    return peaks[static_cast<size_t>(category)];
  };
  using Category = MemoryCategory;
  const std::vector<MemoryItem> items = {
      {"parameters", estimate.parameters + estimate.statistics,
       measured(Category::kParameters)},
      {"gradients", estimate.gradients + estimate.accumulated_gradients,
       measured(Category::kGradients)},
      {"moments", estimate.moments, measured(Category::kOptimizer)},
      {"average", estimate.average, measured(Category::kAverage)},
      // Of these the model knows only the sum at the fullest moment.
      {"activations",
       estimate.images + estimate.activations + estimate.transient +
           estimate.communication + estimate.targets + estimate.workspace,
       measured(Category::kActivations) + measured(Category::kWorkspace) +
           measured(Category::kLoss) + measured(Category::kCommunication) +
           measured(Category::kOther)}};
  return *std::ranges::max_element(items, {}, [](const MemoryItem& item) {
    return item.measured - item.predicted;
  });
}

StepPrediction::StepPrediction(MemoryRequest request, const Mesh& mesh,
                               const LayerGraph& model)
    : request_(std::move(request)), mesh_(mesh), model_(model) {}

int64_t StepPrediction::predict(const Batch& batch,
                                std::vector<ActivationPolicy> policies) {
  request_.plan.activation_policies = std::move(policies);
  request_.step = step_shape(batch, mesh_, model_);
  estimate_ = estimate_rank_memory(request_, mesh_.here);
  return estimate_.total();
}

std::optional<StepEvent> StepPrediction::compare(int64_t measured,
                                                 const CategoryBytes& peaks) {
  const int64_t predicted = estimate_.total();
  if (measured <= predicted) return std::nullopt;
  const MemoryItem item = item_to_blame(estimate_, peaks);
  if (!blamed_.insert(item.name).second) return std::nullopt;
  const nlohmann::ordered_json detail = {
      {"predicted_peak_bytes", predicted},
      {"measured_peak_bytes", measured},
      {"item", item.name},
      {"item_predicted_bytes", item.predicted},
      {"item_measured_bytes", item.measured}};
  return StepEvent{"memory_prediction",
                   "the step needed " + format_bytes(measured) +
                       ", more than the " + format_bytes(predicted) +
                       " predicted; most of it for " + item.name + ": " +
                       format_bytes(item.measured) + ", predicted " +
                       format_bytes(item.predicted),
                   detail.dump()};
}

}  // namespace headroom
