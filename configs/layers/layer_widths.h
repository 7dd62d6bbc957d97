// LayerWidths: where a line of a model table says the channels of convolutions
// inside its layer. YOLOv5's table leaves them to a rule of the module; a
// pruned model's table writes them out, as Headroom's extension of the format:
//
//   Bottleneck  [channels, shortcut, [cv1, cv2, cv1, ..., cv1]], each one's two
//               but for the last cv2, which makes `channels`
//   C3          [channels, shortcut, [cv1, cv2, m.0.cv1, m.0.cv2, m.1.cv1,
//   ...]] C3Ghost     [channels, shortcut, [cv1, cv2, m.0.conv.0.cv1, ...]]
//   SPP, SPPF   [channels, windows, cv1], [channels, window, cv1]
//
// Written widths count as they are: width_multiple is for `channels` alone.
// Two modules say such a number in YOLOv5's format too: a Conv of one channel
// each its groups, and InvertedResidual the channels that it expands to.
//
// The composer of each module (layer_modules.h) declares this and reads by it,
// so that pruning, which writes by it, knows no modules.
//
// Errors: Error with the table's file:line:column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "configs/layers/table_layer.h"

namespace headroom::layers {

struct LayerWidths {
  // The arguments between `channels` and the widths, as they are now.
  std::vector<ModelTable::Argument> before = {};
  // The blocks (LayerProgram::Block::name) whose channels the widths are; none
  // where `channels` says everything.
  std::vector<std::string> blocks = {};
  // Whether one argument lists the widths; otherwise it is the only one.
  bool is_list = false;
  // The arguments as text, for the head of a pruned table; empty where it is
  // YOLOv5's format.
  std::string form = "";
  // The layer's repeats, times depth_multiple.
  int repeats = 1;

  size_t position() const { return 1 + before.size(); }

  // The written widths, or what `rule` gives, one for each block, where there
  // are none.
  using Rule = std::function<std::vector<int64_t>()>;
  std::vector<int64_t> read(const TableLayer& layer, const Rule& rule) const;

  // Writes the output's channels and a width for each block into a line of a
  // table whose width_multiple and depth_multiple are 1.
  void write(int64_t channels, const std::vector<int64_t>& widths,
             ModelTable::Layer& line) const;
};

}  // namespace headroom::layers
