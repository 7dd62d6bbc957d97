// The branches of a head without anchors, as layers of the table.
//
// `Detect, [nc]` stands for two branches of convolutions on each level: one for
// the distances to a box's four sides, one for the classes. with_branches()
// writes each branch as a layer of its own, so that plans, activation policies
// and splits treat it like any other. Detect then only collects their maps: all
// levels' distances, then all levels' classes.
#pragma once

#include <cstdint>
#include <string>

#include "configs/layers/model_table.h"

namespace headroom::layers {

// The module of a branch, [hidden channels, outputs, bias]: two 3x3
// convolutions and a 1x1 convolution whose bias begins as `bias`. Users do not
// write it.
inline constexpr const char* kBranchModule = "DetectBranch";

// Whether the head has anchors.
inline bool has_anchors(const ModelTable& table) {
  return !table.anchors.empty();
}

// The table with the branches as layers, if its head has no anchors and they
// are not there yet; else `table`. Throws Error with file:line:column.
ModelTable with_branches(const ModelTable& table, int64_t num_classes);

// The number of layers with the branches.
int64_t num_layers(const ModelTable& table);

// The name of a layer's tensors in the state: "model.4.", "model.22.cv2.0.".
std::string state_prefix(const ModelTable& table, size_t index);

}  // namespace headroom::layers
