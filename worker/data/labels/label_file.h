// Parses one YOLO label file into boxes. Faults are handled line by line.
//
//   class cx cy w h             a box, normalised by image width and height
//   class x1 y1 x2 y2 x3 y3 ..  a polygon: its bounding box, and its outline
//
// Rows of other programs are read by their form (known_formats.h). Blank lines
// and lines that begin with # are skipped.
//
// Numbers are fractions of the image; a line with a number above 2 is taken to
// be in pixels and is dropped. Whether a line is a box or a polygon is decided
// for each line, so one file may contain both. Files written with six decimals
// exceed the image by up to 5e-7: boxes within kLabelTolerance are not faults
// and are not changed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/data/labels/data_report.h"

namespace headroom::labels {

inline constexpr double kLabelTolerance = 1e-6;

struct BoxLabel {
  int32_t class_index = 0;
  float cx = 0, cy = 0, w = 0, h = 0;  // 0..1
  bool operator==(const BoxLabel&) const = default;
};

// A point of an object's outline in fractions of the image. The last point
// connects to the first.
struct OutlinePoint {
  double x = 0, y = 0;
  bool operator==(const OutlinePoint&) const = default;
};
using Outline = std::vector<OutlinePoint>;

struct LabelFile {
  // A class that is not in `names`. It cannot be repaired, because `names` may
  // be the part that is wrong.
  struct UnknownClass {
    int64_t line = 0;
    std::string class_name;  // "7", or the text in the file
  };
  std::vector<BoxLabel> boxes;
  std::vector<Outline> outlines;  // one for each box; empty if the box has none
  std::vector<DataFault> faults;
  std::optional<UnknownClass> unknown_class;  // the first one found
  int64_t largest_class = -1;  // largest class number in the file
  bool has_class_zero = false;
  int64_t num_polygons = 0;
  // objects = boxes + crowds + dropped
  int64_t objects = 0, crowds = 0, dropped = 0;
};

// `file` is used only in faults. With `single_cls` every class becomes 0, so
// that no class is unknown.
LabelFile parse_label_file(std::string_view text, std::string_view file,
                           int64_t num_classes, bool single_cls);

struct ClassRules;
struct RowForm;

// As above, for rows of another form (known_formats.h). `size` is the size of
// the image; it is used only if the form is in pixels.
LabelFile parse_label_file(std::string_view text, std::string_view file,
                           const ClassRules& classes, const RowForm& form,
                           codecs::ImageSize size);

// Adds the classes of a file to the report of its split.
void add_classes(const LabelFile& labels, DataReport& report);

// The text of a label file; "" if there is no such file. Returns nullopt and
// sets `reason` if it cannot be read or is above 64 MiB.
std::optional<std::string> read_label_text(const std::string& file,
                                           std::string& reason);

// The lines of a label file, with all digits: reading them gives exactly the
// same boxes. A box with an outline is written as a polygon. `outlines` has one
// entry per box or is empty.
std::string label_text(std::span<const BoxLabel> boxes,
                       std::span<const Outline> outlines = {});

// The text of a data.yaml whose splits are the folders images/SPLIT beside it.
// `range` is an extra line of the text, or "".
std::string data_yaml_text(const std::vector<std::string>& class_names,
                           const std::vector<std::string>& splits,
                           const std::string& range = "");

// A point of an outline, in fractions of the image's width and height.
using IndexedPoint = std::array<float, 2>;

// The outlines of one image's boxes, for labels that are polygons. The object
// refers to memory of the data set, which must outlive it.
class Outlines {
 public:
  Outlines() = default;  // an object without outlines

  // `ends` has for each box the index after its last point. Indices count the
  // points of the whole data set; `points` begins at index `begin`.
  Outlines(std::span<const uint64_t> ends, uint64_t begin,
           const IndexedPoint* points)
      : ends_(ends), begin_(begin), points_(points) {}

  // The outline of box number `box` of the image; empty if the box has none.
  std::span<const IndexedPoint> of(size_t box) const {
    if (box >= ends_.size()) return {};
    const uint64_t from = box == 0 ? begin_ : ends_[box - 1];
    return {points_ + (from - begin_), ends_[box] - from};
  }

 private:
  std::span<const uint64_t> ends_;
  uint64_t begin_ = 0;
  const IndexedPoint* points_ = nullptr;
};

}  // namespace headroom::labels
