// LayerWidths: the channels of the convolutions inside a layer. In YOLOv5's
// format a rule of the module determines these widths. As an extension of
// Headroom, the table of a pruned model lists them:
//
//   Bottleneck  [channels, shortcut, [cv1, cv2, cv1, ..., cv1]]: two widths per
//               repeat, without the last cv2, whose width is `channels`
//   C3          [channels, shortcut, [cv1, cv2, m.0.cv1, m.0.cv2, ...]]
//   C3Ghost     [channels, shortcut, [cv1, cv2, m.0.conv.0.cv1, ...]]
//   SPP, SPPF   [channels, windows, cv1], [channels, window, cv1]
//
// width_multiple scales `channels`, not the listed widths. YOLOv5's format also
// has an inner width in two modules: the groups of a depthwise Conv, and the
// expanded channels of InvertedResidual.
//
// The code that composes a module (layer_modules.h) declares its widths.
// Pruning writes widths by that declaration and needs no list of modules.
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
  // The values of the arguments between `channels` and the widths.
  std::vector<ModelTable::Argument> before = {};
  // The names of the blocks (LayerProgram::Block::name) whose channels are
  // listed; empty if `channels` determines all widths.
  std::vector<std::string> blocks = {};
  // Whether the argument is a list of widths; otherwise it is one width.
  bool is_list = false;
  // The arguments as text, for the head of a pruned table; empty in YOLOv5's
  // format.
  std::string form = "";
  // The layer's repeats, times depth_multiple.
  int repeats = 1;

  size_t position() const { return 1 + before.size(); }

  // The listed widths, one per block, or the result of `rule` if none are
  // listed.
  using Rule = std::function<std::vector<int64_t>()>;
  std::vector<int64_t> read(const TableLayer& layer, const Rule& rule) const;

  // Writes the output's channels and a width for each block into a line of a
  // table whose width_multiple and depth_multiple are 1.
  void write(int64_t channels, const std::vector<int64_t>& widths,
             ModelTable::Layer& line) const;
};

}  // namespace headroom::layers
