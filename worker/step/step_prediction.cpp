#include "worker/step/step_prediction.h"

#include <utility>

#include "parallel/base/convolution_workspaces.h"
#include "worker/step/parallel_context.h"

namespace headroom::step {
namespace {

// Matches in the level's rows [begin, end).
int64_t matches_in(const loss::LevelTargets& targets, int64_t begin,
                   int64_t end) {
  constexpr int64_t kRow = 2;  // an index is image, anchor, row, column, class
  int64_t count = 0;
  for (int64_t match = 0; match < targets.size(); ++match) {
    const int64_t* index =
        targets.index.const_data_ptr<int64_t>() + match * targets.index.size(1);
    if (index[kRow] >= begin && index[kRow] < end) ++count;
  }
  return count;
}

}  // namespace

predict::StepShape step_shape(const loader::Batch& batch,
                              const collectives::Mesh& mesh,
                              const model::LayerGraph& model) {
  predict::StepShape shape;
  shape.global_size = batch.global_size;
  shape.image_height = batch.image_height;
  shape.image_width = batch.image_width;
  const plan::SampleRange rows =
      own_rows(mesh, model.max_stride())(batch.image_height);
  for (const std::vector<loss::LevelTargets>& micro_batch : batch.targets) {
    std::vector<int64_t> matches;
    for (size_t level = 0; level < micro_batch.size(); ++level) {
      const int64_t stride = model.levels()[level].stride;
      matches.push_back(matches_in(micro_batch[level], rows.begin / stride,
                                   rows.end / stride));
      shape.batch_matches += micro_batch[level].size();
    }
    if (mesh.is_last_stage()) shape.matches.push_back(std::move(matches));
  }
  return shape;
}

StepPrediction::StepPrediction(predict::MemoryRequest request,
                               const collectives::Mesh& mesh,
                               const model::LayerGraph& model)
    : request_(std::move(request)), mesh_(mesh), model_(model) {}

void StepPrediction::begin_step() {
  num_shapes_ = convolution_workspaces().num_shapes();
}

int64_t StepPrediction::predict(const loader::Batch& batch,
                                std::vector<plan::ActivationPolicy> policies) {
  request_.plan.activation_policies = std::move(policies);
  request_.step = step_shape(batch, mesh_, model_);
  request_.workspaces = &convolution_workspaces();
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
