// channel_pruning: a trained model without the channels whose batch-norm scales
// are smallest (Liu et al. 2017, "Learning efficient convolutional networks
// through network slimming").
//
// Channels compete over the whole model by |scale|, tied ones by the largest of
// theirs. Each unit loses whole multiples of the table's channel_multiple,
// lowest first, and keeps at least a quarter. The first convolution's input and
// the head's outputs stay.
//
// A channel that goes is taken to be the constant that it is without its scale,
// SiLU(bias): what its readers make of that moves into their running means (the
// head's bias). So where scale is 0 the outputs stay as they are, but for a 3x3
// reader at the image's edge, where padding was no constant; where bias is 0
// too, they stay everywhere.
//
// Threads: one per model. Errors: Error (exit 2): a share that cannot be taken,
// with both numbers.
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
    int64_t before = 0, after = 0;  // channels of its units together
  };
  layers::ModelTable
      table;  // widths written out; multiples of width and depth are 1
  std::unique_ptr<model::LayerGraph>
      model;                  // The type is that of what it was made from.
  std::vector<Layer> layers;  // those that have units
  // The arguments as text of each module whose lines say more than in YOLOv5's
  // format.
  std::map<std::string, std::string> forms;
  int64_t channels_before = 0, channels_after = 0;
  int64_t parameters_before = 0, parameters_after = 0;
};

// Removes at least `share` of the channels of all units, 0 < share < 1. `model`
// was built from `table` and stays as it is.
PrunedModel prune_channels(const layers::ModelTable& table,
                           model::LayerGraph& model, double share);

}  // namespace headroom::tools
