// layer_modules: a line of the model table to the program of its layer, module
// by module. All but Detect, which is not a map to a map (table_layer.h checks
// it).
//
//   Conv         [channels, kernel, stride, padding, groups]
//   DWConv       [channels, kernel, stride]; as many groups as channels allow
//   Focus        [channels, kernel]: four neighbouring cells to one, then Conv
//   Bottleneck   [channels, shortcut]; repeated
//   C3           [channels, shortcut]; repeats are its bottlenecks
//   GhostConv    [channels, kernel, stride]: half the channels by a Conv, the
//                others from these by a 5 x 5 of one channel each
//   C3Ghost      [channels]: C3 of ghost bottlenecks
//   ShuffleNetV2 [channels, stride]: half the channels as they are, the others
//                by 1x1, 3x3 of one channel each, 1x1; then shuffled; with
//                stride 2 all by both ways; repeated
//   InvertedResidual  [channels, expanded, kernel, stride, SE, NL]: 1x1 to
//                `expanded` channels unless there are as many, kernel of one
//                channel each, squeeze and excitation if SE, 1x1; NL is RE or
//                HS, missing: the table's activation
//   SqueezeExcitation [ratio]: of as many channels as come
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
// Pruned tables add inner widths to some of these (layer_widths.h).
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

// What table.layers[index] does to these inputs. REQUIRES: it is not Detect.
LayerProgram layer_program(const ModelTable& table, size_t index,
                           const std::vector<MapShape>& inputs,
                           int64_t num_classes);

// The channels of convolutions inside the layer, as that line has them.
LayerWidths layer_widths(const ModelTable& table, size_t index,
                         const std::vector<MapShape>& inputs,
                         int64_t num_classes);

}  // namespace headroom::layers
