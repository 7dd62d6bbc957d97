// image_weights: the probability with which --image-weights draws each image.
//
//   of a class   (1 / labels of it) / (the sum of these over all classes)
//                x (1 - its mAP50-95 in the newest validation)^2; a class
//                without labels counts as if it had one label
//   of an image  the sum of the weights of its labels' classes; 0
//                without labels
//
// As in YOLOv5, before the first validation every mAP is 0.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/labels/dataset.h"

namespace headroom::loader {

// `class_maps` is the mAP50-95 of each class; if it is empty, all are 0.
// REQUIRES: it has as many entries as `labels_per_class`, or none.
std::vector<double> class_weights(const std::vector<int64_t>& labels_per_class,
                                  const std::vector<double>& class_maps);

// The weight of each image of `dataset`. Throws Error (exit 4) if no image has
// a positive weight.
std::vector<double> image_weights(const labels::Dataset& dataset,
                                  const std::vector<double>& class_maps);

int64_t images_without_labels(const labels::Dataset& dataset);

// A hash of the numbers.
uint64_t digest_of(const std::vector<double>& numbers);

}  // namespace headroom::loader
