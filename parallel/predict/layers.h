// The forward of a layer of a model, the head included, operation by operation
// as worker/model/layer_factory.h runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "configs/layers/layer_program.h"
#include "parallel/predict/op_context.h"

namespace headroom::predict {

// A layer of the model, as far as memory goes.
struct ModelLayer {
  std::shared_ptr<const layers::LayerProgram> program;  // null: Detect
  std::vector<int> inputs;  // earlier layers; -1: the image
  int64_t channels = 0;     // channels of its output; Detect: of all levels
  int64_t stride = 1;       // pixels per cell of its output
  int64_t parameters = 0;
  int64_t norm_channels = 0;  // channels of its batch norms
  int64_t parameter_tensors = 0;

  bool is_head() const { return program == nullptr; }
  // As worker/model/layer.h says it.
  layers::LayerInside inside() const {
    return is_head() ? layers::LayerInside::kNothing : program->inside();
  }
};

// The layer's output; of the head, one map per level.
std::vector<Map> run_layer(const OpContext& context, const ModelLayer& layer,
                           const std::vector<Map>& inputs);

}  // namespace headroom::predict
