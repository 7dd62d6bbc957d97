// predict_usual_boxes: gives new heads without anchors predictions that overlap
// the labels of small images.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/fill.h>

#include <string>

#include "parallel/base/head_fields.h"
#include "worker/model/layer_graph.h"

namespace headroom {

// Makes new heads without anchors predict boxes of the labels' size. Otherwise
// hardly any place would have a weight.
inline void predict_usual_boxes(model::LayerGraph& model) {
  if (model.has_anchors()) return;
  const at::NoGradGuard no_grad;
  const int64_t bins = kDistanceBins;
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.name.find(".cv2.") == std::string::npos ||
        entry.role != model::TensorRole::kBias ||
        entry.tensor->numel() != kBoxSides * bins ||
        !entry.name.ends_with(".2.bias")) {
      continue;
    }
    for (int64_t i = 0; i < entry.tensor->numel(); ++i) {
      const double from_usual = static_cast<double>(i % bins) - 2;
      entry.tensor->view({-1})[i].fill_(-0.5 * from_usual * from_usual);
    }
  }
}

}  // namespace headroom
