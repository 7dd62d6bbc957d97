// Small videos, made by the tests that need them.
#pragma once

#include <filesystem>
#include <opencv2/core/mat.hpp>
#include <string>

namespace headroom::video {

// The n-th picture, from 1: a light square on a slope, n pixels to the right.
cv::Mat clip_picture(int height, int width, int number);

// So many of them as Motion JPEG in AVI, 10 a second: written without FFmpeg.
std::string avi_clip(int height, int width, int pictures);

// While it lives, programs are found in this folder alone.
class ProgramFolder {
 public:
  explicit ProgramFolder(const std::filesystem::path& folder);
  ~ProgramFolder();
  ProgramFolder(const ProgramFolder&) = delete;
  ProgramFolder& operator=(const ProgramFolder&) = delete;

 private:
  const std::string before_;
};

}  // namespace headroom::video
