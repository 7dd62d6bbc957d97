// labels.jpg: statistics of a data set's labels: boxes per class, their shapes,
// positions and sizes, and the pairwise distributions of these (a correlogram).
#pragma once

#include <opencv2/core/mat.hpp>

#include "worker/data/labels/dataset.h"

namespace headroom::pictures {

// Returns an RGB picture. Without labels the panels are empty.
cv::Mat draw_labels(const labels::Dataset& dataset);

}  // namespace headroom::pictures
