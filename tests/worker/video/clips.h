// Small videos, made by the tests that need them.
#pragma once

#include <filesystem>
#include <opencv2/core/mat.hpp>
#include <string>

namespace headroom::video {

// The picture of this number, from 1: a light square on a gradient, moved to
// the right by `number` pixels.
cv::Mat clip_picture(int height, int width, int number);

// Encodes `pictures` such pictures as Motion JPEG in AVI, 10 per second,
// without FFmpeg.
std::string avi_clip(int height, int width, int pictures);

// While this object exists, programs are found only in `folder`.
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
