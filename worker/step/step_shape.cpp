#include "worker/step/step_shape.h"

#include "worker/step/parallel_context.h"

namespace headroom::step {
namespace {

// Of the level's rows [begin, end).
int64_t matches_in(const loss::LevelTargets& targets, int64_t begin,
                   int64_t end) {
  constexpr int64_t kRow = 2;  // of an index: image, anchor, row, column, class
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

}  // namespace headroom::step
