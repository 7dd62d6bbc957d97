// Small videos, made by the tests that need them.
#pragma once

#include <opencv2/core/mat.hpp>
#include <string>

#include "worker/video/video_plugin.h"

namespace headroom::video {

// The n-th picture, from 1: a light square on a slope, n pixels to the right.
cv::Mat clip_picture(int height, int width, int number);

// So many of them as Motion JPEG in AVI, 10 a second: written without FFmpeg.
std::string avi_clip(int height, int width, int pictures);

// The plugin of this build; if there is none, its `api` is null, with the
// reason.
VideoPlugin built_video_plugin();

}  // namespace headroom::video
