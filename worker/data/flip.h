// Mirroring a picture with its boxes.
#pragma once

#include <opencv2/core/mat.hpp>
#include <vector>

#include "worker/data/pixel_box.h"

namespace headroom {

void flip_left_right(cv::Mat& pixels, std::vector<NormalizedBox>& boxes);
void flip_up_down(cv::Mat& pixels, std::vector<NormalizedBox>& boxes);

}  // namespace headroom
