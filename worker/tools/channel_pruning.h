// channel_pruning: a trained model without the channels whose batch-norm scales
// are smallest (Liu et al. 2017, "Learning efficient convolutional networks
// through network slimming").
//
// Units compete over the whole model by |scale|, of tied
// writers the largest. Each loses whole multiples of the table's
// channel_multiple, lowest first, and keeps at least a quarter. The first
// convolution's input and the head's outputs stay.
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
#include <memory>
#include <string>
#include <vector>

#include "configs/layers/layer_program.h"
#include "configs/layers/model_table.h"
#include "worker/model/layer_graph.h"

namespace headroom::tools {

// ChannelGraph says which convolution's output channels are which other
// convolutions' input channels, so that some of them can be removed.
//
// A unit is a set of channels that can only be removed together: what one
// batch-normalised convolution writes. Where maps are added, their
// convolutions write the same channels and share a unit: in a C3 with
// shortcuts, cv1 and every bottleneck's cv2. Maps of different layers are never
// added, so every layer's output is a unit of its own.
//
// The graph follows the layers' programs (configs/layers/layer_program.h) and
// knows no modules.
//
// Errors: Error that names the layer where channels are tied in a way that
// pruning does not follow, or where a table cannot say how many are left.

struct ChannelGraph {
  struct Unit {
    int64_t channels = 0;
    struct Writer {
      std::string name;  // "model.2.cv1."
      layers::ActivationFunction activation;
    };
    std::vector<Writer> writers;  // writers as they run
    size_t layer = 0;
  };
  // The channels of a unit inside a map, after its first writers have run.
  struct Segment {
    int unit = kImages;
    size_t num_writers = 0;
  };
  static constexpr int kImages = -1;  // no unit: all channels stay
  // A convolution and the map that it reads.
  struct Reader {
    std::string name;    // "model.2.cv1." or "model.24.m.0."
    bool normed = true;  // false: a head
    std::vector<Segment> input;
  };
  std::vector<Unit> units;
  std::vector<Reader> readers;
  // The units of each layer's convolutions in the order of
  // configs/layers/layer_widths.h, the one that makes the output last.
  std::vector<std::vector<int>> units_of_layer;
};

// `table` has the model's number of classes.
ChannelGraph channel_graph(const layers::ModelTable& table);

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
  int64_t channels_before = 0, channels_after = 0;
  int64_t parameters_before = 0, parameters_after = 0;
};

// Removes at least `share` of the channels of all units, 0 < share < 1. `model`
// was built from `table` and stays as it is.
PrunedModel prune_channels(const layers::ModelTable& table,
                           model::LayerGraph& model, double share);

}  // namespace headroom::tools
