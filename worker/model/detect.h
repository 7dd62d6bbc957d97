// Detect: the detection head with anchors.
//
// Each level has one 1x1 convolution with bias to anchors * (5 + num_classes)
// channels. In channels-last memory its result is [N, H, W, anchors, 5 +
// num_classes], and the raw head [N, anchors, H, W, 5 + num_classes] is a view
// of it, without a copy. Raw heads are float32 if maps have 16 bits.
//
// On a device autograd takes the gradient of a raw head as a map [N, C, H, W]
// of the inputs' type, channels-last, where C is anchors * (5 + num_classes)
// and, for 16 bits, zeros up to filled_channels(). The loss writes this map
// (worker/loss/device_loss.h), so nothing is converted, copied or filled. Any
// other use of a head on a device is without gradients.
//
// Decoding: s = sigmoid(raw); xy = (2s - 0.5 + cell) * stride; wh = (2s)^2 *
// anchor; objectness and classes = s.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/model/layer.h"
#include "worker/model/layer_graph.h"
#include "worker/model/model_state.h"

namespace headroom::model {

// The last layer of a detector: its outputs are the raw heads.
class DetectionHead : public Layer {
 public:
  layers::LayerInside inside() const override {
    return layers::LayerInside::kNothing;
  }
  // See LayerGraph::decode.
  virtual at::Tensor decode(const std::vector<at::Tensor>& heads,
                            const std::vector<int64_t>& first_rows) const = 0;
  // From the current state, since loading weights may change anchors.
  virtual std::vector<LayerGraph::Level> levels() const = 0;
  virtual bool has_anchors() const = 0;
};

class Detect final : public DetectionHead {
 public:
  // One level per input. anchors[level] are in pixels (w, h); all levels have
  // the same number of anchors. If the anchors' areas decrease while strides
  // increase, the order of `anchors` is reversed.
  Detect(ModelState& state, const std::string& prefix,
         const std::vector<layers::MapShape>& inputs,
         std::vector<std::vector<std::pair<double, double>>> anchors,
         int64_t num_classes);

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const StepContext& context) override;
  at::Tensor decode(const std::vector<at::Tensor>& heads,
                    const std::vector<int64_t>& first_rows) const override;
  std::vector<LayerGraph::Level> levels() const override;
  bool has_anchors() const override { return true; }

 private:
  struct Head;
  at::Tensor raw_head(const Head& head, const at::Tensor& map) const;

  struct Head {
    int64_t stride = 0;
    at::Tensor weight;          // [anchors * fields, C, 1, 1]
    at::Tensor compute_weight;  // see NamedTensor::compute
    at::Tensor bias;
  };

  int64_t num_anchors_;
  int64_t num_fields_;
  at::Tensor anchors_;  // [levels, anchors, 2], in cells
  std::vector<Head> heads_;
};

// The 1x1 convolution that ends a head: [N, F, H, W]. On a device its gradient
// is a map as described above, which worker/loss/device_place_loss.h writes.
at::Tensor output_convolution(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias,
                              const at::Tensor& compute_weight);

// What output_convolution() does with 16-bit maps.
//
// The convolution computes in the maps' type. Its result is converted to
// float32 before the bias is added, because loss and decoding use float32.
// Backward rounds the gradient to the maps' type for the convolution only.
//
// Shapes: x [N, C, H, W] bfloat16 or float16; weight [F, C, 1, 1] and bias [F]
// float32; returns [N, F, H, W] float32 channels-last. `compute_weight`: the
// weight in the maps' type, or undefined (worker/model/conv_block.h). Saved for
// backward: x and the weights.
at::Tensor head_convolution(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias,
                            const at::Tensor& compute_weight);

}  // namespace headroom::model
