// A small model table with two levels and every kind of layer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "configs/layers/model_table.h"

namespace headroom::model {

inline layers::ModelTable::Layer table_layer(
    int line, std::vector<int> from, int repeats, std::string module,
    std::vector<layers::ModelTable::Argument> args) {
  layers::ModelTable::Layer result;
  result.from = std::move(from);
  result.repeats = repeats;
  result.module = std::move(module);
  result.args = std::move(args);
  result.place = {"tiny.yaml", line, 5};
  return result;
}

// Two levels, of strides 8 and 16; every kind of layer.
inline layers::ModelTable tiny_table() {
  layers::ModelTable table;
  table.name = "tiny";
  table.num_classes = 2;
  table.width_multiple = 0.25;
  table.depth_multiple = 0.33;
  table.anchors = {{{10, 13}, {16, 30}}, {{30, 61}, {62, 45}}};
  const auto word = [](const char* text) { return std::string(text); };
  table.layers = {
      table_layer(10, {-1}, 1, "Conv", {32.0, 6.0, 4.0, 1.0}),
      table_layer(11, {-1}, 1, "Conv", {64.0, 3.0, 2.0}),
      table_layer(12, {-1}, 3, "C3", {64.0}),
      table_layer(13, {-1}, 1, "Conv", {128.0, 3.0, 2.0}),
      table_layer(14, {-1}, 1, "SPPF", {128.0, 5.0}),
      table_layer(15, {-1}, 1, "nn.Upsample",
                  {word("None"), 2.0, word("nearest")}),
      table_layer(16, {-1, 2}, 1, "Concat", {1.0}),
      table_layer(17, {-1}, 3, "C3", {64.0, word("False")}),
      table_layer(18, {7, 4}, 1, "Detect", {word("nc"), word("anchors")}),
  };
  return table;
}

}  // namespace headroom::model
