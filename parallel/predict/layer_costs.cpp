#include "parallel/predict/layer_costs.h"

#include <algorithm>
#include <utility>

namespace headroom::predict {
namespace {

constexpr std::array kPolicies = {
    plan::ActivationPolicy::kKeep, plan::ActivationPolicy::kLean,
    plan::ActivationPolicy::kRecompute, plan::ActivationPolicy::kOffload};

class Walk {
 public:
  Walk(const SimulatedStage& stage, const MicroBatchShape& extents,
       const LossShape& loss)
      : stage_(stage),
        micro_batch_(timeline_, stage, extents, loss),
        peaks_(stage.layers.size(), 0) {
    micro_batch_.before_layer = [this](int64_t layer) { begin_layer(layer); };
  }

  std::vector<LayerCost> run() {
    timeline_.set_layer(stage_.begin);
    std::vector<Memory> received, gradients;
    for (const int layer : stage_.received())
      received.push_back(timeline_.allocate(micro_batch_.map_bytes(layer)));
    std::vector<Memory> sent = micro_batch_.forward(std::move(received));
    end_layer();
    sent.clear();
    std::vector<int64_t> kept(stage_.layers.size(), 0);
    for (int64_t layer = stage_.begin; layer < stage_.end; ++layer)
      kept[static_cast<size_t>(layer)] = timeline_.live_bytes_of(layer);

    timeline_.set_layer(stage_.end - 1);
    for (const int layer : stage_.sent())
      gradients.push_back(timeline_.allocate(micro_batch_.map_bytes(layer)));
    timeline_.reset_peak();
    micro_batch_.backward(std::move(gradients));
    end_layer();

    std::vector<LayerCost> costs;
    int64_t before = 0;
    for (int64_t layer = stage_.begin; layer < stage_.end; ++layer) {
      const auto at = static_cast<size_t>(layer);
      costs.push_back({kept[at], std::max(peaks_[at] - before, kept[at])});
      before += kept[at];
    }
    return costs;
  }

 private:
  void begin_layer(int64_t layer) {
    end_layer();
    layer_ = layer;
  }
  void end_layer() {
    if (layer_ >= 0) {
      int64_t& peak = peaks_[static_cast<size_t>(layer_)];
      peak = std::max(peak, timeline_.peak_bytes());
    }
    timeline_.reset_peak();
  }

  const SimulatedStage& stage_;
  MemoryTimeline timeline_;
  MicroBatch micro_batch_;
  int64_t layer_ = -1;
  std::vector<int64_t> peaks_;  // live bytes of all layers
};

}  // namespace

std::vector<LayerCost> planned_layer_costs(const SimulatedStage& stage,
                                           const MicroBatchShape& extents,
                                           const LossShape& loss) {
  return Walk(stage, extents, loss).run();
}

std::vector<LayerCosts> layer_costs(SimulatedStage stage,
                                    const MicroBatchShape& extents,
                                    const LossShape& loss) {
  std::vector<LayerCosts> result(static_cast<size_t>(stage.end - stage.begin));
  for (const plan::ActivationPolicy policy : kPolicies) {
    stage.policies.assign(stage.layers.size(), policy);
    const std::vector<LayerCost> costs =
        planned_layer_costs(stage, extents, loss);
    for (size_t layer = 0; layer < costs.size(); ++layer)
      result[layer][static_cast<size_t>(policy)] = costs[layer];
  }
  return result;
}

}  // namespace headroom::predict
