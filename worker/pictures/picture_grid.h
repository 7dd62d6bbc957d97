// PictureGrid: up to 16 images side by side, each with its boxes and a line of
// text.
//
// Ownership: owns its pixels, at most 1920 x 1920. Threads: one.
#pragma once

#include <cstdint>
#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

#include "worker/metrics/detection.h"

namespace headroom::pictures {

inline constexpr int64_t kMostPictured = 16;

class PictureGrid {
 public:
  // For `count` images of the network's size, larger where letters would not
  // fit and smaller where there are many. REQUIRES: 0 < count <= kMostPictured.
  PictureGrid(int64_t count, int64_t image_height, int64_t image_width);

  // Of one image in the grid.
  int64_t cell_height() const { return cell_.height; }
  int64_t cell_width() const { return cell_.width; }

  struct Boxes {
    std::vector<metrics::Detection> boxes;  // in pixels of the cell
    bool confidences = false;               // are written beside the names
  };
  // The next one. REQUIRES: of the cell's size; fewer than `count` so far.
  void add(const cv::Mat& pixels, const std::string& text, const Boxes& boxes,
           const std::vector<std::string>& class_names);

  const cv::Mat& picture() const { return picture_; }

 private:
  cv::Size cell_;
  int columns_;
  int next_ = 0;
  cv::Mat picture_;
};

}  // namespace headroom::pictures
