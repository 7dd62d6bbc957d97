// image_weights: how likely --image-weights draws each image of a data set.
//
//   of a class   (1 / labels of it) / (the sum of these over all classes)
//                x (1 - its mAP50-95 in the newest validation)^2; a class
//                without labels counts as if it had one
//   of an image  the sum over its labels of their classes' weights: none
//                without labels
//
// As in YOLOv5, before the first validation every mAP is 0.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/labels/dataset.h"

namespace headroom::loader {

// `class_maps`: mAP50-95 by class; empty: all 0.
// REQUIRES: as many as `labels_per_class`, or none.
std::vector<double> class_weights(const std::vector<int64_t>& labels_per_class,
                                  const std::vector<double>& class_maps);

// The weight of each image of `dataset`. Throws Error (exit 4) where none has a
// weight.
std::vector<double> image_weights(const labels::Dataset& dataset,
                                  const std::vector<double>& class_maps);

int64_t images_without_labels(const labels::Dataset& dataset);

// Equal where all numbers are.
uint64_t digest_of(const std::vector<double>& numbers);

}  // namespace headroom::loader
