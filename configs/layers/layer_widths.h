// layer_widths: channels of the convolutions inside a layer, which YOLOv5's
// table leaves to its rule and a pruned model's table writes out:
//
//   C3    [channels, shortcut, [cv1, cv2, m.0.cv1, m.0.cv2, m.1.cv1, ...]]
//         rule: half of channels, all of them
//   SPPF  [channels, window, cv1]
//         rule: half of the input's channels
//
// The last argument is Headroom's extension of the format. Where bottlenecks
// add their input, every m.i.cv2 is as wide as cv1. Written widths count as
// they are: width_multiple is for `channels` alone.
//
// Errors: Error with the layer's place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"

namespace headroom::layers {

// cv1, cv2, then the two of each bottleneck. `repeats`: after scaling.
std::vector<int64_t> c3_widths(const ModelTable::Layer& layer, int64_t channels,
                               int64_t repeats, bool shortcut);

int64_t sppf_width(const ModelTable::Layer& layer, int64_t input_channels);

// Whether a table can say the channels of every convolution of this module: of
// a single one always (`channels`), of several for C3 and SPPF alone.
bool can_write_widths(const std::string& module, size_t num_convolutions);

// Writes the widths in the orders above, then `channels`, and the repeats that
// they amount to. REQUIRES: can_write_widths(); at least one width.
void write_widths(ModelTable::Layer& layer, std::vector<double> widths);

}  // namespace headroom::layers
