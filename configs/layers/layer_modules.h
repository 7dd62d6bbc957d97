// layer_modules: turns a line of the model table into the program of its layer,
// for every module except Detect, whose output is not one map (table_layer.h
// checks it).
//
//   Conv         [channels, kernel, stride, padding, groups]
//   DWConv       [channels, kernel, stride]; as many groups as possible
//   Focus        [channels, kernel]: joins four neighbouring cells into one,
//                then Conv
//   Bottleneck   [channels, shortcut]; repeated
//   C3           [channels, shortcut]; repeats are its bottlenecks
//   GhostConv    [channels, kernel, stride]: a Conv makes half the channels; a
//                depthwise 5 x 5 makes the other half from the first half
//   C3Ghost      [channels]: C3 of ghost bottlenecks
//   ShuffleNetV2 [channels, stride]: half the channels unchanged, the other
//                half through 1x1, depthwise 3x3, 1x1; then all are shuffled;
//                with stride 2 both branches have convolutions on all channels;
//                repeated
//   InvertedResidual  [channels, expanded, kernel, stride, SE, NL]: 1x1 to
//                `expanded` channels if the input has another number, depthwise
//                kernel, squeeze and excitation if SE, 1x1; NL is RE or HS; the
//                default is the table's activation
//   SqueezeExcitation [ratio]: as many channels as its input
//   SPP, SPPF    [channels, windows], [channels, window]
//   Concat       [1]
//   nn.Upsample  [None, 2, nearest]
//   nn.ConvTranspose2d  [channels, 2, 2]
//
// Ghost: Han et al., "GhostNet: More Features from Cheap Operations", 2020.
// ShuffleNetV2: Ma et al., "ShuffleNet V2: Practical Guidelines for Efficient
// CNN Architecture Design", 2018.
// InvertedResidual: Howard et al., "Searching for MobileNetV3", 2019.
// SqueezeExcitation: Hu et al., "Squeeze-and-Excitation Networks", 2018.
//
// Pruned tables add inner widths to some of these arguments (layer_widths.h).
//
// Errors: Error with the table's file:line:column for an unknown module, wrong
// arguments, maps that do not fit together.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/layers/layer_program.h"
#include "configs/layers/layer_widths.h"
#include "configs/layers/model_table.h"

namespace headroom::layers {

// The program of table.layers[index]. REQUIRES: that layer is not Detect.
LayerProgram layer_program(const ModelTable& table, size_t index,
                           const std::vector<MapShape>& inputs,
                           int64_t num_classes);

// The channels of the convolutions inside table.layers[index].
LayerWidths layer_widths(const ModelTable& table, size_t index,
                         const std::vector<MapShape>& inputs,
                         int64_t num_classes);

}  // namespace headroom::layers
