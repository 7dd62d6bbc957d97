// COCO's JSON files: annotations of a data set, and results of a detector.
//
// A file is read in one pass without a tree: it costs its own length, 120 bytes
// per box, and 16 bytes per point where outlines are asked for. Ids may be any
// whole numbers, also written as text; nothing needs to be in order. Unknown
// keys are skipped.
//
// Errors: Error (exit 4), one line with file:line.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace headroom::labels {

struct CocoImage {
  int64_t id = 0;
  std::string file_name;  // "" if the file does not say
  int64_t width = 0;      // 0 if the file does not say
  int64_t height = 0;
  int64_t line = 0;
};

struct CocoAnnotation {
  std::optional<int64_t> id;
  int64_t image_id = 0;
  int64_t category_id = 0;
  std::array<double, 4> bbox{};  // x, y, w, h in pixels
  int num_bbox = 0;  // numbers that bbox has in the file: 4 is right
  std::optional<double> area;
  bool crowd = false;
  // Is `segmentation` a list with something in it? Masks are not.
  bool has_outline = false;
  // Is a part of it not a list of 3 or more pairs of numbers?
  bool has_bad_outline = false;
  // Its parts, x and y in turn in pixels; only where they are asked for.
  std::vector<std::vector<double>> outline;
  double score = 0;  // results have it alone
  int64_t line = 0;
};

struct CocoCategory {
  int64_t id = 0;
  std::string name;
};

struct CocoFile {
  std::vector<CocoImage> images;            // the file's order
  std::vector<CocoAnnotation> annotations;  // likewise
  std::vector<CocoCategory> categories;     // sorted by rising id
};

// Refused: no such file, over 4 GiB, no JSON, no list of images and categories,
// records without their ids, ids twice.
CocoFile read_coco_annotations(const std::filesystem::path& file,
                               bool keep_outlines = false);

// A list of {image_id, category_id, bbox, score}. Refused: records without one
// of these.
std::vector<CocoAnnotation> read_coco_results(
    const std::filesystem::path& file);

}  // namespace headroom::labels
