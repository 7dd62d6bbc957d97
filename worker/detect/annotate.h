// Boxes with their names and confidences, drawn into a picture for people.
#pragma once

#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

#include "worker/metrics/detection.h"

namespace headroom::detect {

struct AnnotateOptions {
  int line_width = 0;  // pixels; 0: by the picture's size
  bool labels = true;
  bool confidences = true;
};

// pixels: CV_8UC3, RGB.
void annotate(cv::Mat& pixels,
              const std::vector<metrics::Detection>& detections,
              const std::vector<std::string>& class_names,
              const AnnotateOptions& options);

}  // namespace headroom::detect
