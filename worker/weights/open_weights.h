// open_weights: a file of weights as the network it belongs to, for what looks
// at images and does not train.
//
// Errors: Error (exit 2): no such file, damaged, of a model that it does not
// name or that does not fit.
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
  std::unique_ptr<model::LayerGraph> model;  // CPU
  std::vector<std::string> class_names;      // "class3" where none is known
  std::map<std::string, std::string>
      metadata;        // "model", its "table"; "names", "imgsz", "stride" and
                       // "range" and "value_range" where the file has them
  ValueRanges ranges;  // the images' range in training; none: 8 bits
};

// `cfg`: the model; "": what the file says.
OpenedWeights open_weights(const std::filesystem::path& path,
                           const std::string& cfg,
                           at::ScalarType scalar_type = at::kFloat);

}  // namespace headroom::weights
