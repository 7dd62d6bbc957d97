// BoxRules decides for each labelled box, in every format, whether it is kept,
// clipped or dropped, and reports each change.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/data/labels/label_file.h"

namespace headroom::labels {

// The corners of a box, by default as fractions of the image.
struct BoxExtent {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
};

// The value as text with up to six significant digits, for example "0.25".
std::string short_number(double value);

// Parses a number that may have spaces around it. Returns nullopt for any other
// text.
std::optional<double> parse_number(std::string_view text);

// Joins the parts of one outline into one ring. Each part holds alternating x
// and y, in pixels. The connecting lines run over the same points in both
// directions, so that paste_mirrored() is not affected by them. REQUIRES: every
// part has 3 or more pairs.
Outline joined_outline(const std::vector<std::vector<double>>& parts,
                       codecs::ImageSize size);

// The outer ring of a polygon in pixels, without repeating its first vertex.
using PixelRing = std::vector<std::array<double, 2>>;

// REQUIRES: there is at least one ring, and no ring is empty.
BoxExtent extent_of(std::span<const PixelRing> rings);

// Cuts the rings at the image's edges. Returns an empty list if no part is
// inside.
std::vector<PixelRing> parts_in(const std::vector<PixelRing>& rings,
                                double width, double height);

// The least share of an object's area that must be visible. Also the default of
// `headroom tile`.
inline constexpr double kLeastVisible = 0.3;

// Whether enough of a polygon remains for a box after cutting it at the image's
// edges: at least kLeastVisible of its area, and one pixel along each axis.
// (`headroom tile` has no polygons and compares areas of boxes.)
bool shows_enough(const std::vector<PixelRing>& parts,
                  const std::vector<PixelRing>& rings);

// Whether the boxes are fractions of their images: all coordinates lie within 0
// to 1, and at least one is neither 0 nor 1.
bool are_fractions(std::span<const BoxExtent> boxes);

// How a file is written is decided by nine tenths of its rows, because single
// rows may be damaged.
constexpr bool is_most(int64_t count, int64_t of) {
  return count * 10 >= of * 9;
}

// Whether so many boxes would stick out of their images that the four numbers
// of a box may mean something else: at least a third.
constexpr bool many_stick_out(int64_t stick_out, int64_t boxes) {
  return stick_out * 3 >= boxes;
}

// The least number of boxes from which their format is guessed.
inline constexpr int64_t kLeastBoxes = 3;

// Whether the four numbers of the boxes mean something else than their format
// says, such as corners x1 y1 x2 y2: read so, most boxes fit into their images
// (`fit`), and as the format says, many stick out.
constexpr bool mean_something_else(int64_t boxes, int64_t fit,
                                   int64_t stick_out) {
  return boxes >= kLeastBoxes && is_most(fit, boxes) &&
         many_stick_out(stick_out, boxes);
}

// Whether a label's number can be a class: a whole number from 0 on.
bool is_class(double number);

// Converts a box from fractions of the image to pixels of an image of `size`.
BoxExtent pixels_of_fractions(const BoxExtent& box, codecs::ImageSize size);

class BoxRules {
 public:
  explicit BoxRules(LabelFile& result) : result_(result) {}

  // Sets the place that is named in faults of the next boxes: "a.txt:3". `box`
  // names one of several boxes at that place.
  void at(std::string where, std::string box = "");

  // Finds out in which units the label file gives `boxes`, which are all boxes
  // of an image, and reports units other than pixels of the upright image as a
  // fault. add_pixels() converts boxes from these units. If all boxes lie
  // within 0 to 1, they are fractions. `stated` is the image size that the
  // label file gives, {0, 0} if it gives none. If it differs from the size of
  // the image, the boxes are turned like the stored pixels, or scaled if the
  // ratio of the sides is equal. A stated size into which the boxes do not fit
  // is wrong: it is reported and not used.
  void in_units_of(std::span<const BoxExtent> boxes, codecs::ImageSize stated,
                   codecs::ImageSize image, const std::string& path);
  // Like in_units_of(), for boxes that are known to be in pixels.
  void labelled_at(codecs::ImageSize stated, codecs::ImageSize image,
                   const std::string& path, std::span<const BoxExtent> boxes);

  void fault(DataFaultKind kind, std::string what, std::string fix);
  void drop(DataFaultKind kind, std::string what);

  // Converts a label's number to a class. Returns nullopt and reports the
  // number if it is not valid as a class. Returns nullopt and stores the class
  // as the file's unknown class if it is not below `num_classes`.
  std::optional<int32_t> class_of(double number, int64_t line,
                                  int64_t num_classes);

  // Records the class of a box that is dropped for another reason.
  void note_class(double number);

  // Adds a box, or reports why it is dropped. If the box needs no repair,
  // `as_written` is stored unchanged. The outline is clipped like its box.
  // `said_before` is the text of the fault that a duplicate gets.
  void add(int32_t class_index, const BoxExtent& extent,
           const std::optional<BoxLabel>& as_written,
           std::string_view said_before, Outline outline = {});

  // Adds a box with corners in pixels of an image of size `size`, in any order;
  // the outline is in fractions of the image.
  void add_pixels(int32_t class_index, const BoxExtent& written,
                  codecs::ImageSize size, Outline outline = {});

 private:
  // Converts a box of the image on which it was drawn to a box of this image.
  BoxExtent placed(const BoxExtent& drawn) const;

  LabelFile& result_;
  int orientation_ = 1;  // the orientation (exif.h) that placed() applies
  codecs::ImageSize drawn_size_;
  double scale_x_ = 1, scale_y_ = 1;
  std::set<std::tuple<int32_t, float, float, float, float>> seen_;
  std::string where_;
  std::string box_;
};

}  // namespace headroom::labels
