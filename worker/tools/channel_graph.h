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
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "configs/layers/layer_program.h"
#include "configs/layers/model_table.h"

namespace headroom::tools {

struct ChannelGraph {
  struct Unit {
    int64_t channels = 0;
    struct Writer {
      std::string name;  // "model.2.cv1."
      layers::ActivationFunction activation;
    };
    std::vector<Writer> writers;  // in the order in which they run
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
  // By layer: the unit of each convolution in the order of
  // configs/layers/layer_widths.h, the one that makes the output last.
  std::vector<std::vector<int>> units_of_layer;
};

// `table` has the model's number of classes.
ChannelGraph channel_graph(const layers::ModelTable& table);

}  // namespace headroom::tools
