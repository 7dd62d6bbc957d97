// open_weights: opens a file of weights as a network, for code that processes
// images and does not train.
//
// Errors: Error (exit 2) if the file is missing or damaged, or does not name
// its model, or does not fit the model.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/model/layer_graph.h"

namespace headroom::weights {

struct OpenedWeights {
  layers::ModelTable table;
  std::unique_ptr<model::LayerGraph> model;  // its tensors are on the CPU
  std::vector<std::string> class_names;  // "class3" if the file has no names
  // The keys are "model" and "table", and if the file has them "names",
  // "imgsz", "stride", "range" and "value_range".
  std::map<std::string, std::string> metadata;
  ValueRanges ranges;  // value range of images in training; empty for 8 bits
};

// `cfg` is the model; "" means the model that the file names.
OpenedWeights open_weights(const std::filesystem::path& path,
                           const std::string& cfg,
                           at::ScalarType scalar_type = at::kFloat);

}  // namespace headroom::weights
