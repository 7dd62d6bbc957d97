// layer_factory: one line of the model table to a Layer. What a module consists
// of is configs/layers/layer_modules.h's business.
//
// Errors: Error with the table's file:line:column for an unknown module, wrong
// arguments, maps that do not fit together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/model/detect.h"
#include "worker/model/layer.h"
#include "worker/model/model_state.h"

namespace headroom::model {

struct BuiltLayer {
  std::unique_ptr<Layer> layer;
  layers::MapShape output;   // unset for the head
  Detect* detect = nullptr;  // the layer itself, where it is the head
};

// Builds table.layers[index] for inputs of these shapes.
BuiltLayer build_layer(const layers::ModelTable& table, std::size_t index,
                       const std::vector<layers::MapShape>& inputs,
                       int64_t num_classes, ModelState& state);

}  // namespace headroom::model
