// What this program writes of a data set: label files and the data.yaml.
//
// Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "worker/data/labels/label_file.h"

namespace headroom::labels {

// YOLO's lines, with all digits: read again, the boxes are these to the bit.
// A box with an outline (of `outlines`, one per box or none at all) is a
// polygon's line.
std::string label_text(std::span<const BoxLabel> boxes,
                       std::span<const Outline> outlines = {});

// A data.yaml whose splits are images/SPLIT beside it.
std::string data_yaml_text(const std::vector<std::string>& class_names,
                           const std::vector<std::string>& splits);

}  // namespace headroom::labels
