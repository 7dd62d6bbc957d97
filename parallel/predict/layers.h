// Simulates the forward of one model layer or the head, operation by operation,
// as worker/model/layer_factory.h runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "configs/layers/layer_program.h"
#include "parallel/predict/op_context.h"

namespace headroom::predict {

// The sizes of a model layer that determine its memory.
struct ModelLayer {
  // null for the head, Detect
  std::shared_ptr<const layers::LayerProgram> program;
  std::vector<int> inputs;  // earlier layers; -1 is the image
  int64_t channels = 0;     // of the output; Detect: sum over levels
  int64_t stride = 1;       // pixels per cell of its output
  int64_t parameters = 0;
  int64_t norm_channels = 0;  // channels of its batch norms
  int64_t parameter_tensors = 0;

  bool is_head() const { return program == nullptr; }
  // As Layer::inside() (worker/model/layer.h).
  layers::LayerInside inside() const {
    return is_head() ? layers::LayerInside::kNothing : program->inside();
  }
};

// Returns the layer's output; the head returns one map per level.
std::vector<Map> run_layer(const OpContext& context, const ModelLayer& layer,
                           const std::vector<Map>& inputs);

}  // namespace headroom::predict
