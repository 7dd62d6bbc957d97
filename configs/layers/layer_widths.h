// LayerWidths: the channels of the convolutions inside a layer, as its line of
// the model table has them. In YOLOv5's format they follow from a rule of the
// module. A pruned model's table lists them, which is Headroom's extension:
//
//   Bottleneck  [channels, shortcut, [cv1, cv2, cv1, ..., cv1]]: two of each,
//               but not the last cv2, which makes `channels`
//   C3          [channels, shortcut, [cv1, cv2, m.0.cv1, m.0.cv2, ...]]
//   C3Ghost     [channels, shortcut, [cv1, cv2, m.0.conv.0.cv1, ...]]
//   SPP, SPPF   [channels, windows, cv1], [channels, window, cv1]
//
// Written widths count as they are: width_multiple is for `channels` alone.
// YOLOv5's format has such a number in two modules: the groups of a depthwise
// Conv, and the channels that InvertedResidual expands to.
//
// The code that composes a module (layer_modules.h) declares them. Pruning
// writes them by that declaration and needs no list of modules.
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
