#include "worker/data/flip.h"

#include <opencv2/core.hpp>

namespace headroom {

void flip_left_right(cv::Mat& pixels, std::vector<NormalizedBox>& boxes) {
  cv::flip(pixels, pixels, 1);
  for (NormalizedBox& box : boxes) box.cx = 1 - box.cx;
}

void flip_up_down(cv::Mat& pixels, std::vector<NormalizedBox>& boxes) {
  cv::flip(pixels, pixels, 0);
  for (NormalizedBox& box : boxes) box.cy = 1 - box.cy;
}

}  // namespace headroom
