// channel_pruning: removes the channels with the smallest batch-norm scales
// from a trained model (Liu et al. 2017, "Learning efficient convolutional
// networks through network slimming").
//
// Channels of the whole model are ranked by |scale|; channels that are tied
// together are ranked by the largest |scale| among them. The lowest are removed
// first. Each unit keeps a multiple of the table's channel_multiple and at
// least a quarter of its channels. The input of the first convolution and the
// outputs of the head are never pruned.
//
// A removed channel is replaced by the constant that it has when its scale is
// 0, SiLU(bias). The values that its readers compute from this constant are
// moved into the readers' running means (in the head, into the bias). So if the
// scale is 0, the model's outputs do not change, except for a 3x3 reader at the
// image's edge, because padding is 0 instead of the constant. If the bias is 0
// too, the outputs do not change at all.
//
// Threads: one per model. Errors: Error (exit 2), with the requested and the
// possible number of channels, if the share cannot be removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/model/layer_graph.h"

namespace headroom::tools {

struct PrunedModel {
  struct Layer {
    size_t index = 0;
    int64_t before = 0, after = 0;  // channels of all units of the layer
  };
  layers::ModelTable
      table;  // with explicit widths; multiples of width and depth are 1
  std::unique_ptr<model::LayerGraph> model;  // same types as the original model
  std::vector<Layer> layers;                 // the layers that have units
  // The arguments, as text, of modules that need more arguments than YOLOv5's
  // format has.
  std::map<std::string, std::string> forms;
  int64_t channels_before = 0, channels_after = 0;
  int64_t parameters_before = 0, parameters_after = 0;
};

// Removes at least `share` of the channels of all units, 0 < share < 1. `model`
// was built from `table` and is not changed.
PrunedModel prune_channels(const layers::ModelTable& table,
                           model::LayerGraph& model, double share);

}  // namespace headroom::tools
