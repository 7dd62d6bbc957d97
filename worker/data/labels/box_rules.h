// BoxRules keeps, clips or drops each labelled box, whichever format wrote it,
// and reports what it changed. (README, "Labels".)
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

// A box's corners, normalised to the image unless said otherwise.
struct BoxExtent {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
};

// "0.25", six digits.
std::string short_number(double value);

// A number between spaces; nothing if the text is anything else.
std::optional<double> parse_number(std::string_view text);

// Parts of one outline, each x and y in turn in pixels, joined by a line there
// and back, which paste_mirrored() does not see. REQUIRES: every part has 3 or
// more pairs.
Outline joined_outline(const std::vector<std::vector<double>>& parts,
                       codecs::ImageSize size);

// A polygon's outer ring in pixels, its first vertex once.
using PixelRing = std::vector<std::array<double, 2>>;

// REQUIRES: there is a ring, and none is empty.
BoxExtent extent_of(std::span<const PixelRing> rings);

// What an image has of the rings; none where it has no pixel of them.
std::vector<PixelRing> parts_in(const std::vector<PixelRing>& rings,
                                double width, double height);

// What `tile` keeps unless it is told otherwise.
inline constexpr double kLeastVisible = 0.3;

// Is a polygon that the image's edges cut still worth a box? A share of its own
// area counts, where `tile`, which knows boxes only, takes theirs; and a pixel
// of each side.
bool shows_enough(const std::vector<PixelRing>& parts,
                  const std::vector<PixelRing>& rings);

class BoxRules {
 public:
  explicit BoxRules(LabelFile& result) : result_(result) {}

  // Says where the next boxes are written: "a.txt:3"; `box` names one of a
  // line's many.
  void at(std::string where, std::string box = "");

  void fault(DataFaultKind kind, std::string what, std::string fix);
  void drop(DataFaultKind kind, std::string what);

  // `as_written` is kept to its bits where the box needs no repair. An outline
  // is clipped as its box is.
  void add(int32_t class_index, const BoxExtent& extent,
           const std::optional<BoxLabel>& as_written,
           std::string_view said_before, Outline outline = {});

  // Corners in pixels of an image of that size; the outline in fractions of it.
  void add_pixels(int32_t class_index, const BoxExtent& pixels,
                  codecs::ImageSize size, Outline outline = {});

 private:
  LabelFile& result_;
  std::set<std::tuple<int32_t, float, float, float, float>> seen_;
  std::string where_;
  std::string box_;
};

}  // namespace headroom::labels
