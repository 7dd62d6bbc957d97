// detect_in_video: finds boxes in the pictures of a video and writes them.
//
// Pictures are numbered from 1, as in YOLOv5. With a stride of n, pictures 1,
// n+1, 2n+1, … are examined and keep their numbers. One picture is in memory at
// a time.
//
// Errors: Error (exit 5) if the annotated video cannot be written; (exit 2) if
// its pictures are too large for a video.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "worker/detect/detection_folder.h"
#include "worker/detect/detector.h"

namespace headroom::detect {

struct VideoPicture {
  int64_t number = 1;
  int64_t of = 0;  // the file's number of pictures; 0 if unknown
  const ImageDetections& found;
  double seconds = 0;     // time spent in the network
  bool is_known = false;  // whether an unfinished run examined the picture
};

struct VideoOptions {
  int64_t stride = 1;
  int64_t max_pixels = 0;  // larger pictures are refused
  std::function<bool()> stopped;
  // Returns the findings of an unfinished run in the next picture, if there are
  // any.
  std::function<std::optional<std::vector<metrics::Detection>>()> known;
  std::function<void(const VideoPicture&)> on_picture;
};

struct VideoOutcome {
  int64_t pictures = 0;  // number of examined pictures
  std::string fault;     // "" if the file has no fault
};

// Examines a video. Writes the examined pictures as NAME.mp4 in `folder`, a
// video as long as the original. If the run is stopped, this video ends early.
VideoOutcome detect_in_video(const std::filesystem::path& video,
                             Detector& detector, DetectionFolder& folder,
                             const VideoOptions& options);

}  // namespace headroom::detect
