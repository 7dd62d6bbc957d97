// ChannelGraph: which convolution's output channels are which other ones'
// input channels, as far as removing some of them goes.
//
// A unit is a set of channels that can only go together. It is the output of
// one batch-normalised convolution; in a C3 whose bottlenecks add their input,
// cv1 and every bottleneck's cv2 write the same channels, and are one unit.
// Between layers nothing is added, so every layer's output is a unit of its
// own.
//
// Threads: a value. Errors: Error naming the layer for an unknown module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/model/layer_graph.h"

namespace headroom::tools {

struct ChannelGraph {
  struct Unit {
    int64_t channels = 0;
    // "model.2.cv1.": the blocks that write it, in the order they run.
    std::vector<std::string> writers;
    size_t layer = 0;
  };
  // A run of channels of a map: a unit's, once its first writers have run.
  struct Segment {
    int unit = kImages;
    size_t num_writers = 0;
  };
  static constexpr int kImages = -1;  // no unit: nothing goes
  // What a convolution reads.
  struct Reader {
    std::string name;    // "model.2.cv1." or "model.24.m.0."
    bool normed = true;  // false: a head
    std::vector<Segment> input;
  };
  std::vector<Unit> units;
  std::vector<Reader> readers;
  // Of a C3's or SPPF's layer: the units of the convolutions inside, in the
  // order of configs/layers/layer_widths.h; then that of its output. A Conv has
  // the last only.
  std::vector<std::vector<int>> units_of_layer;
};

// `model` was built from `table`.
ChannelGraph channel_graph(const layers::ModelTable& table,
                           model::LayerGraph& model);

}  // namespace headroom::tools
