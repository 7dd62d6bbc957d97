// COCO's JSON files: annotations of a data set, and results of a detector.
//
// A file is read in one pass without building a tree. Memory: the length of the
// file, 170 bytes per box, and 16 bytes per point if outlines are wanted. Ids
// may be any whole numbers, also written as text; records may be in any order.
// Unknown keys are skipped. NaN and Infinity, which Python writes, are read as
// values that are not finite.
//
// Errors: throws Error (exit 4) with one line that names file:line.
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
  std::string file_name;  // "" if the file has none
  int64_t width = 0;      // 0 if the file has none
  int64_t height = 0;
  int64_t line = 0;
};

struct CocoAnnotation {
  std::optional<int64_t> id;
  int64_t image_id = 0;
  int64_t category_id = 0;
  std::array<double, 4> bbox{};  // x, y, w, h in pixels
  int num_bbox = 0;  // number of values in the file; bbox is valid if 4
  std::optional<double> area;
  bool crowd = false;  // `iscrowd` or `ignore`
  // Whether `segmentation` is a list that is not empty. Masks are not lists.
  bool has_outline = false;
  // Whether a part of the outline is not a list of 3 or more pairs of numbers.
  bool has_bad_outline = false;
  // The corners of the outline's box: x1, y1, x2, y2; empty without outline.
  std::optional<std::array<double, 4>> outline_box;
  // The parts of the outline, each with alternating x and y, in pixels. Empty
  // unless the caller asked for outlines.
  std::vector<std::vector<double>> outline;
  double score = 0;  // used only in results
  int64_t line = 0;
};

struct CocoCategory {
  int64_t id = 0;
  std::string name;
};

struct CocoFile {
  std::vector<CocoImage> images;            // in the order of the file
  std::vector<CocoAnnotation> annotations;  // in the order of the file
  std::vector<CocoCategory> categories;     // sorted by id
};

// Throws for a missing file, a file over 4 GiB, text that is not JSON, a file
// without lists of images and categories, records without their ids, and
// repeated ids.
CocoFile read_coco_annotations(const std::filesystem::path& file,
                               bool keep_outlines = false);

// Reads a list of {image_id, category_id, bbox, score}. Throws for records that
// lack one of these fields.
std::vector<CocoAnnotation> read_coco_results(
    const std::filesystem::path& file);

}  // namespace headroom::labels
