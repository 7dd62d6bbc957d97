#include "parallel/predict/row_costs.h"

#include <algorithm>
#include <utility>

namespace headroom::predict {
namespace {

constexpr std::array kPolicies = {
    plan::ActivationPolicy::kKeep, plan::ActivationPolicy::kLean,
    plan::ActivationPolicy::kRecompute, plan::ActivationPolicy::kOffload};

class Walk {
 public:
  Walk(const Stage& stage, const Extents& extents, const LossShape& loss)
      : stage_(stage),
        micro_batch_(tape_, stage, extents, loss),
        peaks_(stage.rows.size(), 0) {
    micro_batch_.before_row = [this](int64_t row) { begin_row(row); };
  }

  std::vector<RowCost> run() {
    tape_.set_row(stage_.begin);
    std::vector<Memory> received, gradients;
    for (const int row : stage_.received())
      received.push_back(tape_.allocate(micro_batch_.map_bytes(row)));
    std::vector<Memory> sent = micro_batch_.forward(std::move(received));
    end_row();
    sent.clear();
    std::vector<int64_t> kept(stage_.rows.size(), 0);
    for (int64_t row = stage_.begin; row < stage_.end; ++row)
      kept[static_cast<size_t>(row)] = tape_.live_bytes_of(row);

    tape_.set_row(stage_.end - 1);
    for (const int row : stage_.sent())
      gradients.push_back(tape_.allocate(micro_batch_.map_bytes(row)));
    tape_.reset_peak();
    micro_batch_.backward(std::move(gradients));
    end_row();

    std::vector<RowCost> costs;
    int64_t before = 0;
    for (int64_t row = stage_.begin; row < stage_.end; ++row) {
      const auto at = static_cast<size_t>(row);
      costs.push_back({kept[at], std::max(peaks_[at] - before, kept[at])});
      before += kept[at];
    }
    return costs;
  }

 private:
  void begin_row(int64_t row) {
    end_row();
    row_ = row;
  }
  void end_row() {
    if (row_ >= 0) {
      int64_t& peak = peaks_[static_cast<size_t>(row_)];
      peak = std::max(peak, tape_.peak_bytes());
    }
    tape_.reset_peak();
  }

  const Stage& stage_;
  Tape tape_;
  MicroBatch micro_batch_;
  int64_t row_ = -1;
  std::vector<int64_t> peaks_;  // live bytes of all rows
};

}  // namespace

std::vector<RowCost> planned_row_costs(const Stage& stage,
                                       const Extents& extents,
                                       const LossShape& loss) {
  return Walk(stage, extents, loss).run();
}

std::vector<RowCosts> row_costs(Stage stage, const Extents& extents,
                                const LossShape& loss) {
  std::vector<RowCosts> result(static_cast<size_t>(stage.end - stage.begin));
  for (const plan::ActivationPolicy policy : kPolicies) {
    stage.policies.assign(stage.rows.size(), policy);
    const std::vector<RowCost> costs = planned_row_costs(stage, extents, loss);
    for (size_t row = 0; row < costs.size(); ++row)
      result[row][static_cast<size_t>(policy)] = costs[row];
  }
  return result;
}

}  // namespace headroom::predict
