#include "worker/model/place_head.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>

#include "parallel/base/check.h"
#include "parallel/base/head_fields.h"
#include "parallel/base/text.h"
#include "worker/model/model_state.h"

namespace headroom::model {
namespace {

// Distances to the four sides in cells, [N, H, W, 4].
at::Tensor distances(const at::Tensor& box) {
  const at::Tensor logits = box.permute({0, 2, 3, 1})
                                .reshape({box.size(0), box.size(2), box.size(3),
                                          kBoxSides, kDistanceBins});
  return at::matmul(at::softmax(logits, -1),
                    at::arange(kDistanceBins, box.options()));
}

}  // namespace

PlaceHead::PlaceHead(ModelState& state, const std::string& prefix,
                     const std::vector<layers::MapShape>& branches,
                     int64_t num_classes)
    : num_classes_(num_classes) {
  for (size_t level = 0; level < branches.size() / 2; ++level) {
    strides_.push_back(branches[level].stride);
  }
  state.add(
      prefix + "dfl.conv.weight", TensorRole::kConstant, &bins_,
      at::arange(kDistanceBins, at::kDouble).view({1, kDistanceBins, 1, 1}));
}

at::Tensor PlaceHead::decode(const std::vector<at::Tensor>& heads,
                             const std::vector<int64_t>& first_rows) const {
  const size_t levels = strides_.size();
  HEADROOM_CHECK(heads.size() == 2 * levels &&
                     (first_rows.empty() || first_rows.size() == levels),
                 cat(heads.size(), " maps and ", first_rows.size(),
                     " first rows of ", levels, " levels"));
  const at::NoGradGuard no_grad;
  const int64_t images = heads.front().size(0);
  int64_t num_rows = 0;
  for (size_t level = 0; level < levels; ++level)
    num_rows += heads[level].size(2) * heads[level].size(3);
  at::Tensor rows = at::empty({images, num_rows, kFirstClass + num_classes_},
                              heads.front().options());
  int64_t begin = 0;
  for (size_t level = 0; level < levels; ++level) {
    const int64_t height = heads[level].size(2), width = heads[level].size(3);
    const at::Tensor part =
        rows.narrow(1, begin, height * width)
            .view({images, height, width, kFirstClass + num_classes_});
    begin += height * width;
    const at::Tensor sides = distances(heads[level]);
    const auto low = sides.narrow(3, 0, 2), high = sides.narrow(3, 2, 2);
    const int64_t first_row = first_rows.empty() ? 0 : first_rows[level];
    const auto stride = static_cast<double>(strides_[level]);
    at::Tensor centre = part.narrow(3, 0, 2);
    centre.copy_(high.sub(low).div_(2));
    centre.select(3, 0).add_(at::arange(width, rows.options()).add_(0.5));
    centre.select(3, 1).add_(
        at::arange(first_row, first_row + height, rows.options())
            .add_(0.5)
            .view({height, 1}));
    centre.mul_(stride);
    part.narrow(3, 2, 2).copy_(low.add(high).mul_(stride));
    part.select(3, kObjectness).fill_(1);
    part.narrow(3, kFirstClass, num_classes_)
        .copy_(at::sigmoid(heads[levels + level].permute({0, 2, 3, 1})));
  }
  return rows;
}

std::vector<LayerGraph::Level> PlaceHead::levels() const {
  std::vector<LayerGraph::Level> levels;
  for (const int64_t stride : strides_) levels.push_back({stride, {}});
  return levels;
}

}  // namespace headroom::model
