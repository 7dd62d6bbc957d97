// PlaceHead: the head without anchors, as in YOLOv5u and YOLOv8.
//
// Its branches are layers of the table (configs/layers/detect_branches.h); this
// layer only hands their maps on. The raw heads are, for L levels, L maps of
// distances [N, 4 * bins, H, W] and then L maps of class logits [N, classes, H,
// W]; float32 if maps have 16 bits.
//
// Decoding: a distance is the mean of 0..bins-1 under the softmax of its
// logits, in cells from the centre of a place to a side of the box. There is no
// objectness, so that field is 1 and a detection's score is its class's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/model/detect.h"

namespace headroom::model {

class PlaceHead final : public DetectionHead {
 public:
  // `branches`: the shapes of the raw heads.
  PlaceHead(ModelState& state, const std::string& prefix,
            const std::vector<layers::MapShape>& branches, int64_t num_classes);

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const StepContext&) override {
    return inputs;
  }

  at::Tensor decode(const std::vector<at::Tensor>& heads,
                    const std::vector<int64_t>& first_rows) const override;
  std::vector<LayerGraph::Level> levels() const override;
  bool has_anchors() const override { return false; }

 private:
  int64_t num_classes_;
  std::vector<int64_t> strides_;
  at::Tensor bins_;  // 0, 1, ..: stored with the weights, never trained
};

}  // namespace headroom::model
