// The work of headroom detect: examines images and videos one after another,
// writes the files with their detections, and continues an unfinished run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/detect/detection_folder.h"
#include "worker/detect/map_layers.h"
#include "worker/metrics/nms.h"

namespace headroom::tools {

struct DetectRequest {
  std::string weights, cfg, source, output, image_size, tile_size, classes;
  std::string resample;
  double overlap = 0;
  std::string device;
  int threads = 0;
  int64_t video_stride = 0;
  metrics::NmsOptions nms{.multi_label = false, .classes = {}};
  detect::FolderOptions folder;
  detect::MapLayers::Formats layers;
  bool resume = false;
  std::vector<std::string> words;  // the arguments of the command line
};

// Returns the exit code. Throws Error.
int run_detection(const DetectRequest& request);

}  // namespace headroom::tools
