// What was found, in the forms other programs read:
//
//   YOLO txt   per image: class cx cy w h [confidence], fractions of the image
//   CSV        image,class,name,confidence,x1,y1,x2,y2 (pixels)
//   COCO JSON  [{image_id, category_id, bbox [x, y, w, h], score}]: ids of
//              annotations where there are some, else image_id is the file's
//              stem, a number where it is one, and category_id the class + 1
//
// Pure: text from values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "worker/metrics/detection.h"

namespace headroom::detect {

struct ImageDetections {
  std::filesystem::path image;
  int64_t height = 0, width = 0;
  std::vector<metrics::Detection> detections;  // in its pixels
};

std::string yolo_text(const ImageDetections& found, bool with_confidence);

std::string csv_header();
std::string csv_lines(const ImageDetections& found,
                      const std::vector<std::string>& class_names);

// Of annotations that the images come from.
struct CocoIds {
  std::map<std::string, int64_t> images;  // by path
  std::vector<int64_t> categories;        // by class
};
// Of one image, as coco_json has them between its brackets: "\n{...},\n{...}".
std::string coco_records(const ImageDetections& found, const CocoIds& ids = {});
std::string coco_json(const std::vector<ImageDetections>& all,
                      const CocoIds& ids = {});

// "2 RBC, 1 WBC"; "nothing".
std::string counts_text(const ImageDetections& found,
                        const std::vector<std::string>& class_names);

}  // namespace headroom::detect
