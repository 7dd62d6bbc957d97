// ChannelGraph says which convolution's output channels are which other
// convolutions' input channels, so that some of them can be removed.
//
// A unit is a row of channels, each of which stands for itself and for all that
// must go with it. A batch-normalised convolution writes one, and convolutions
// share one where
//
//   - their maps are added: cv1 of a C3 with shortcuts and every bottleneck's
//     cv2;
//   - one of them reads the other with one channel each: the two of a
//     GhostConv. Its map joins both, so each channel of the unit is in it
//     twice.
//
// In a C3Ghost both happen: cv1's first half and its second half are the same
// unit. The graph follows the layers' programs
// (configs/layers/layer_program.h) and knows no modules.
//
// Errors: Error that names the layer where channels are tied in a way that
// pruning does not follow, and the way.
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
    size_t layer = 0;  // the first that writes it
  };
  // What has batch-norm scales.
  struct Convolution {
    std::string name;  // "model.2.cv1."
    layers::ActivationFunction activation;
    std::vector<int> units;  // its output channels are those of these, in turn
  };
  // A unit's channels of a convolution.
  struct Part {
    size_t convolution = 0;
    int64_t first_channel = 0;
  };
  // The channels of a unit inside a map, which are the sum of these parts; or
  // channels of the images.
  struct Segment {
    int unit = kImages;
    int64_t channels = 0;
    std::vector<Part> sum;
  };
  static constexpr int kImages = -1;  // no unit: all channels stay
  // A convolution that reads all channels of a map.
  struct Reader {
    std::string name;    // "model.2.cv1." or "model.24.m.0."
    bool normed = true;  // false: a head
    std::vector<Segment> input;
  };
  // What a line of the table has to say: the units of the layer's map, and
  // those of each of widths.blocks.
  struct Line {
    layers::LayerWidths widths;
    std::vector<int> output;
    std::vector<std::vector<int>> blocks;
  };
  std::vector<Unit> units;
  std::vector<Convolution> convolutions;
  std::vector<Reader> readers;
  std::map<size_t, Line> lines;  // the lines of layers that have convolutions
};

// `table` has the model's number of classes.
ChannelGraph channel_graph(const layers::ModelTable& table);

}  // namespace headroom::tools
