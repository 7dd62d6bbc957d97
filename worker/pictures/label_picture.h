// labels.jpg: what the labels of a data set are like: boxes per class, their
// shapes, where they lie, how large they are, and how these figures go together
// (a correlogram).
#pragma once

#include <opencv2/core/mat.hpp>

#include "worker/data/labels/dataset.h"

namespace headroom::pictures {

// RGB. Without labels the panels stay empty.
cv::Mat draw_labels(const labels::Dataset& dataset);

}  // namespace headroom::pictures
