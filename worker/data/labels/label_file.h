// One YOLO label file: lines to boxes, faults repaired line by line.
//
//   class cx cy w h             a box, normalised by image width and height
//   class x1 y1 x2 y2 x3 y3 ..  a polygon: its bounding box, and its outline
//
// Which of the two is decided per line, so that a mixed file means what it
// says. Files written with six decimals stick out of the image by up to 5e-7:
// boxes within kLabelTolerance are neither faults nor changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/data/labels/data_report.h"

namespace headroom::labels {

inline constexpr double kLabelTolerance = 1e-6;

struct BoxLabel {
  int32_t class_index = 0;
  float cx = 0, cy = 0, w = 0, h = 0;  // 0..1
  bool operator==(const BoxLabel&) const = default;
};

// Of an object, as fractions of the image; its last point is joined to its
// first.
struct OutlinePoint {
  double x = 0, y = 0;
  bool operator==(const OutlinePoint&) const = default;
};
using Outline = std::vector<OutlinePoint>;

struct LabelFile {
  // A class that `names` does not have: not repairable, as it is `names` that
  // is wrong.
  struct UnknownClass {
    int64_t line = 0;
    std::string class_name;  // "7", or the word that the file has
  };
  std::vector<BoxLabel> boxes;
  std::vector<Outline> outlines;  // of each box; empty where it has none
  std::vector<DataFault> faults;
  std::optional<UnknownClass> unknown_class;  // the first
  int64_t num_polygons = 0;
};

// `file` is used in faults only. With `single_cls` every class becomes 0 and
// none is unknown.
LabelFile parse_label_file(std::string_view text, std::string_view file,
                           int64_t num_classes, bool single_cls);

// The text of a label file, "" if there is no such file; nothing, and `reason`,
// if it cannot be read or is beyond 64 MiB.
std::optional<std::string> read_label_text(const std::filesystem::path& file,
                                           std::string& reason);

}  // namespace headroom::labels
