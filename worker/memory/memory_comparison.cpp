#include "worker/memory/memory_comparison.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "parallel/base/units.h"

namespace headroom::memory {

MemoryItem item_to_blame(const predict::MemoryEstimate& estimate,
                         const activations::CategoryBytes& peaks) {
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
      // The memory model predicts only the sum of these categories at the peak.
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

StepEvent memory_prediction_event(const MemoryComparison& comparison) {
  const int64_t predicted = comparison.predicted.total();
  const MemoryItem item = item_to_blame(comparison.predicted, comparison.peaks);
  const nlohmann::ordered_json detail = {
      {"phase", comparison.phase},
      {"predicted_peak_bytes", predicted},
      {"measured_peak_bytes", comparison.measured},
      {"item", item.name},
      {"item_predicted_bytes", item.predicted},
      {"item_measured_bytes", item.measured}};
  return {EventKind::kMemoryPrediction,
          "the " + comparison.phase + " needed " +
              format_bytes(comparison.measured) + ", more than the " +
              format_bytes(predicted) + " predicted; most of it for " +
              item.name + ": " + format_bytes(item.measured) + ", predicted " +
              format_bytes(item.predicted),
          detail.dump()};
}

PhaseWatch::PhaseWatch(std::string phase, activations::MemoryMeter& memory)
    : phase_(std::move(phase)), memory_(memory) {
  memory_.reset_peak();
}

MemoryComparison PhaseWatch::compare(
    const predict::MemoryEstimate& predicted) const {
  return {phase_, predicted, memory_.peak_bytes(), memory_.peak_by_category()};
}

PhaseMemory gather_memory(collectives::Communicator& world,
                          const MemoryComparison& comparison) {
  const auto at = static_cast<size_t>(2 * world.rank());
  std::vector<int64_t> numbers(2 * static_cast<size_t>(world.size()), 0);
  numbers[at] = comparison.predicted.total();
  numbers[at + 1] = comparison.measured;
  world.all_reduce(
      at::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())},
                    at::kLong),
      collectives::ReduceOp::kMax);
  PhaseMemory memory = {comparison.phase, {}};
  for (size_t i = 0; i < numbers.size(); i += 2) {
    memory.ranks.push_back({numbers[i], numbers[i + 1]});
  }
  return memory;
}

}  // namespace headroom::memory
