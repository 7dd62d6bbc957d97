// ChannelGraph: finds which output channels of convolutions must be removed
// together, and which convolutions read them.
//
// A unit is a list of channels. Each channel of a unit represents all output
// channels that can only be removed together. A batch-normalised convolution
// writes one unit; two convolutions share a unit if
//
//   - their maps are added: cv1 of a C3 with shortcuts and every bottleneck's
//     cv2;
//   - one of them reads the map of the other with one channel per group: the
//     two convolutions of a GhostConv. The GhostConv's map joins both maps, so
//     it has each channel of the unit twice.
//
// Both cases occur in a C3Ghost: the first half and the second half of cv1's
// output are the same unit. The graph is built from the layers' programs
// (configs/layers/layer_program.h) and needs no modules.
//
// Errors: Error that names the layer and the reason if channels are tied in a
// way that pruning does not support.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "configs/layers/layer_program.h"
#include "configs/layers/layer_widths.h"
#include "configs/layers/model_table.h"

namespace headroom::tools {

struct ChannelGraph {
  struct Unit {
    int64_t channels = 0;
    size_t layer = 0;  // the first layer that writes the unit
  };
  // A convolution with batch norm.
  struct Convolution {
    std::string name;  // "model.2.cv1."
    layers::ActivationFunction activation;
    std::vector<int> units;  // the units of its output channels, in order
  };
  // The position of a unit's channels in a convolution's output.
  struct Part {
    size_t convolution = 0;
    int64_t first_channel = 0;
  };
  // The channels of a unit inside a map: the sum of the parts in `sum`, which
  // is empty for channels of the images.
  struct Segment {
    int unit = kImages;
    int64_t channels = 0;
    std::vector<Part> sum;
  };
  static constexpr int kImages = -1;  // not a unit: all channels are kept
  // A convolution that reads all channels of a map.
  struct Reader {
    std::string name;    // "model.2.cv1." or "model.24.m.0."
    bool normed = true;  // false: a convolution of the head
    std::vector<Segment> input;
  };
  // The data from which a layer's line of the table is written: the units of
  // the layer's map, and the units of each block in widths.blocks.
  struct Line {
    layers::LayerWidths widths;
    std::vector<int> output;
    std::vector<std::vector<int>> blocks;
  };
  std::vector<Unit> units;
  std::vector<Convolution> convolutions;
  std::vector<Reader> readers;
  std::map<size_t, Line> lines;  // by layer; only layers with convolutions
};

// `table` must have the model's number of classes.
ChannelGraph channel_graph(const layers::ModelTable& table);

}  // namespace headroom::tools
