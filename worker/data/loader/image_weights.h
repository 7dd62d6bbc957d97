// image_weights: the weights by which --image-weights draws images.
//
//   weight of a class   (1 / labels) / (sum of 1 / labels over all classes)
//                       x (1 - mAP50-95 in the newest validation)^2, where
//                       `labels` is its number of labels, at least 1
//   weight of an image  sum of the weights of its labels' classes; 0 without
//                       labels
//
// As in YOLOv5, before the first validation every mAP is 0.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/labels/dataset.h"

namespace headroom::loader {

// `class_maps` is the mAP50-95 of each class; if it is empty, all mAPs are 0.
// REQUIRES: `class_maps` is empty or has as many entries as `labels_per_class`.
std::vector<double> class_weights(const std::vector<int64_t>& labels_per_class,
                                  const std::vector<double>& class_maps);

// The weight of each image of `dataset`. Throws Error (exit 4) if no image has
// a positive weight.
std::vector<double> image_weights(const labels::Dataset& dataset,
                                  const std::vector<double>& class_maps);

int64_t images_without_labels(const labels::Dataset& dataset);

// A hash of the weights.
uint64_t digest_of(const std::vector<double>& numbers);

}  // namespace headroom::loader
