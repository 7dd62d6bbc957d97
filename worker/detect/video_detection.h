// detect_in_video: a video's pictures, one after another, to boxes and files.
//
// Pictures are numbered from 1, as YOLOv5 numbers them; with a stride of n, the
// 1st, the (n+1)th and so on are looked at and keep their numbers. One picture
// is in memory at a time.
//
// Errors: Error (exit 5): the annotated video cannot be written; (exit 2): its
// pictures are too large for one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "worker/detect/detection_folder.h"
#include "worker/detect/detector.h"
#include "worker/video/video_api.h"

namespace headroom::detect {

struct VideoPicture {
  int64_t number = 1;
  int64_t of = 0;  // the file's number of pictures; 0: unknown
  const ImageDetections& found;
  double seconds = 0;     // the network's time
  bool is_known = false;  // an unfinished run looked at it
};

struct VideoOptions {
  int64_t stride = 1;
  int64_t max_pixels = 0;  // the most of a picture
  std::function<bool()> stopped;
  // What an unfinished run found in the next picture; none: it is looked at.
  std::function<std::optional<std::vector<metrics::Detection>>()> known;
  std::function<void(const VideoPicture&)> on_picture;
};

struct VideoOutcome {
  int64_t pictures = 0;  // looked at
  std::string fault;     // what was wrong with the file; "": nothing
};

// The annotated video is NAME.mp4 of `folder`, with as many pictures as were
// looked at, and as long as the video; a run that is stopped leaves what it
// has.
VideoOutcome detect_in_video(video::VideoApi& api,
                             const std::filesystem::path& video,
                             Detector& detector, DetectionFolder& folder,
                             const VideoOptions& options);

}  // namespace headroom::detect
