#include "worker/data/labels/box_rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "parallel/base/text.h"
#include "worker/data/codecs/exif.h"

namespace headroom::labels {

std::string short_number(double value) { return significant_text(value, 6); }

namespace {

std::string extent_text(const BoxExtent& extent) {
  return "x " + short_number(extent.x1) + " to " + short_number(extent.x2) +
         ", y " + short_number(extent.y1) + " to " + short_number(extent.y2);
}

double area_of(std::span<const PixelRing> rings) {
  double area = 0;
  for (const PixelRing& ring : rings) {
    double twice = 0;
    for (size_t i = 0; i < ring.size(); ++i) {
      const auto& from = ring[i];
      const auto& to = ring[(i + 1) % ring.size()];
      twice += from[0] * to[1] - to[0] * from[1];
    }
    area += std::abs(twice) / 2;
  }
  return area;
}

// Cuts a ring at an edge and returns the part with coordinates above it, or
// below it (Sutherland and Hodgman). `axis` is 0 for x and 1 for y.
PixelRing cut_at(const PixelRing& ring, size_t axis, double edge,
                 bool keep_above) {
  PixelRing left;
  const auto depth = [&](const std::array<double, 2>& point) {
    return keep_above ? point[axis] - edge : edge - point[axis];
  };
  for (size_t i = 0; i < ring.size(); ++i) {
    const auto& from = ring[(i + ring.size() - 1) % ring.size()];
    const auto& to = ring[i];
    const double before = depth(from), after = depth(to);
    if ((before < 0 && after > 0) || (before > 0 && after < 0)) {
      const size_t other = 1 - axis;
      std::array<double, 2> crossing{};
      crossing[axis] = edge;
      crossing[other] =
          std::lerp(from[other], to[other], before / (before - after));
      left.push_back(crossing);
    }
    if (after >= 0) left.push_back(to);
  }
  return left;
}

// If a ring left the image several times, cutting leaves parts that run along
// the image's edge and back again. Removes these parts.
void drop_ways_back(PixelRing& ring) {
  const auto turns_back = [](const auto& a, const auto& b, const auto& c) {
    for (const size_t axis : {0, 1}) {
      const size_t other = 1 - axis;
      if (a[axis] == b[axis] && b[axis] == c[axis] &&
          (b[other] - a[other]) * (c[other] - b[other]) <= 0) {
        return true;
      }
    }
    return false;
  };
  PixelRing kept;
  for (const auto& point : ring) {
    kept.push_back(point);
    while (kept.size() > 2 &&
           turns_back(*(kept.end() - 3), *(kept.end() - 2), kept.back())) {
      kept.erase(kept.end() - 2);
    }
  }
  size_t first = 0;
  while (kept.size() - first > 2) {
    const auto& last = kept.back();
    if (turns_back(*(kept.end() - 2), last, kept[first])) {
      kept.pop_back();
    } else if (turns_back(last, kept[first], kept[first + 1])) {
      ++first;
    } else {
      break;
    }
  }
  kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(first));
  ring = std::move(kept);
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return std::nullopt;
  text = text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
  double value = 0;
  const auto [end, status] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

Outline joined_outline(const std::vector<std::vector<double>>& parts,
                       codecs::ImageSize size) {
  Outline outline;
  for (const std::vector<double>& part : parts) {
    const size_t first = outline.size();
    for (size_t i = 0; i < part.size(); i += 2) {
      outline.push_back({part[i] / size.width, part[i + 1] / size.height});
    }
    if (parts.size() == 1) return outline;
    outline.push_back(outline[first]);
    outline.push_back(outline[0]);
  }
  return outline;
}

BoxExtent extent_of(std::span<const PixelRing> rings) {
  BoxExtent extent{rings[0][0][0], rings[0][0][1], rings[0][0][0],
                   rings[0][0][1]};
  for (const PixelRing& ring : rings) {
    for (const auto& [x, y] : ring) {
      extent = {std::min(extent.x1, x), std::min(extent.y1, y),
                std::max(extent.x2, x), std::max(extent.y2, y)};
    }
  }
  return extent;
}

std::vector<PixelRing> parts_in(const std::vector<PixelRing>& rings,
                                double width, double height) {
  constexpr size_t kLeastVertices = 3;
  std::vector<PixelRing> parts;
  for (const PixelRing& ring : rings) {
    PixelRing part = cut_at(cut_at(ring, 0, 0, true), 0, width, false);
    part = cut_at(cut_at(part, 1, 0, true), 1, height, false);
    drop_ways_back(part);
    if (part.size() < kLeastVertices) continue;
    const BoxExtent extent = extent_of({&part, 1});
    if (extent.x2 > extent.x1 && extent.y2 > extent.y1) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

bool shows_enough(const std::vector<PixelRing>& parts,
                  const std::vector<PixelRing>& rings) {
  constexpr double kLeastSide = 1;  // in pixels
  if (parts.empty()) return false;
  const BoxExtent left = extent_of(parts), whole = extent_of(rings);
  if (left.x1 == whole.x1 && left.y1 == whole.y1 && left.x2 == whole.x2 &&
      left.y2 == whole.y2) {
    return true;
  }
  return left.x2 - left.x1 >= kLeastSide && left.y2 - left.y1 >= kLeastSide &&
         area_of(parts) >= kLeastVisible * area_of(rings);
}

void BoxRules::at(std::string where, std::string box) {
  where_ = std::move(where);
  box_ = std::move(box);
}

void BoxRules::fault(DataFaultKind kind, std::string what, std::string fix) {
  if (!box_.empty()) what = box_ + ": " + what;
  result_.faults.push_back({kind, where_, std::move(what), std::move(fix)});
}

void BoxRules::drop(DataFaultKind kind, std::string what) {
  fault(kind, std::move(what), "box dropped");
  result_.faults.back().costs_box = true;
  ++result_.dropped;
}

bool are_fractions(std::span<const BoxExtent> boxes) {
  bool has_parts = false;
  for (const BoxExtent& box : boxes) {
    for (const double value : {box.x1, box.y1, box.x2, box.y2}) {
      if (!(value >= -kLabelTolerance && value <= 1 + kLabelTolerance)) {
        return false;
      }
      has_parts = has_parts || (value > 0 && value < 1);
    }
  }
  return has_parts;
}

BoxExtent pixels_of_fractions(const BoxExtent& box, codecs::ImageSize size) {
  return {box.x1 * size.width, box.y1 * size.height, box.x2 * size.width,
          box.y2 * size.height};
}

void BoxRules::in_units_of(std::span<const BoxExtent> boxes,
                           codecs::ImageSize stated, codecs::ImageSize image,
                           const std::string& path) {
  constexpr int32_t kLeastSide = 4;
  if (image.width >= kLeastSide && image.height >= kLeastSide &&
      are_fractions(boxes)) {
    drawn_size_ = {1, 1};
    scale_x_ = image.width;
    scale_y_ = image.height;
    return fault(DataFaultKind::kOtherSize, "all corners lie within 0 to 1",
                 "boxes taken as fractions of the image");
  }
  labelled_at(stated, image, path, boxes);
}

void BoxRules::labelled_at(codecs::ImageSize stated, codecs::ImageSize image,
                           const std::string& path,
                           std::span<const BoxExtent> boxes) {
  if (boxes.empty() || stated.width <= 0 || stated.height <= 0 ||
      stated == image) {
    return;
  }
  const std::string differs =
      cat("labelled at ", stated.width, " x ", stated.height,
          ", the image has ", image.width, " x ", image.height);
  for (const BoxExtent& box : boxes) {
    constexpr double kSlack = 1.01;
    const double x = std::max(box.x1, box.x2), y = std::max(box.y1, box.y2);
    if (x > stated.width * kSlack + 1 || y > stated.height * kSlack + 1) {
      return fault(DataFaultKind::kOtherSize,
                   differs + "; a box ends at x " + short_number(x) + ", y " +
                       short_number(y) + ", so the size in the labels is wrong",
                   "boxes taken as pixels of the image");
    }
  }
  const auto is_scaled = [&](codecs::ImageSize from) {
    const double x = static_cast<double>(image.width) / from.width;
    const double y = static_cast<double>(image.height) / from.height;
    return std::abs(x * from.height - image.height) <= 1 ||
           std::abs(image.height / x - from.height) <= 1 ||
           std::abs(image.width / y - from.width) <= 1;
  };
  codecs::ImageSize drawn = stated;
  const codecs::ImageSize turned = {stated.width, stated.height};
  if (!is_scaled(drawn) && is_scaled(turned)) {
    const int orientation = codecs::stored_orientation(path);
    if (codecs::swaps_axes(orientation)) {
      orientation_ = orientation;
      drawn = turned;
    }
  }
  if (!is_scaled(drawn)) {
    return fault(DataFaultKind::kOtherSize, differs,
                 "boxes taken as pixels of the image");
  }
  drawn_size_ = stated;
  scale_x_ = static_cast<double>(image.width) / drawn.width;
  scale_y_ = static_cast<double>(image.height) / drawn.height;
  if (drawn == image) {
    fault(DataFaultKind::kOtherSize,
          cat("labelled at ", stated.width, " x ", stated.height,
              ", as the image is stored; upright it has ", image.width, " x ",
              image.height),
          "boxes turned");
  } else {
    fault(DataFaultKind::kOtherSize, differs,
          orientation_ == 1 ? "boxes scaled" : "boxes turned and scaled");
  }
}

BoxExtent BoxRules::placed(const BoxExtent& drawn) const {
  const auto place = [&](double x, double y) -> std::array<double, 2> {
    const double w = drawn_size_.width, h = drawn_size_.height;
    switch (orientation_) {
      case 5:
        return {y, x};
      case 6:
        return {h - y, x};
      case 7:
        return {h - y, w - x};
      case 8:
        return {y, w - x};
      default:
        return {x, y};
    }
  };
  const auto [x1, y1] = place(drawn.x1, drawn.y1);
  const auto [x2, y2] = place(drawn.x2, drawn.y2);
  return {std::min(x1, x2) * scale_x_, std::min(y1, y2) * scale_y_,
          std::max(x1, x2) * scale_x_, std::max(y1, y2) * scale_y_};
}

bool is_class(double number) {
  // A larger number is probably not a class but the value of another column.
  constexpr double kMostClass = 1e6;
  return number >= 0 && number <= kMostClass && number == std::floor(number);
}

void BoxRules::note_class(double number) {
  if (!is_class(number)) return;
  const auto index = static_cast<int32_t>(number);
  result_.largest_class = std::max<int64_t>(result_.largest_class, index);
  result_.has_class_zero |= index == 0;
}

std::optional<int32_t> BoxRules::class_of(double number, int64_t line,
                                          int64_t num_classes) {
  if (!is_class(number)) {
    drop(DataFaultKind::kBadClass, "class " + short_number(number));
    return std::nullopt;
  }
  note_class(number);
  const auto index = static_cast<int32_t>(number);
  if (index < num_classes) return index;
  ++result_.dropped;
  if (!result_.unknown_class) {
    result_.unknown_class = {line, std::to_string(index)};
  }
  return std::nullopt;
}

void BoxRules::add(int32_t class_index, const BoxExtent& extent,
                   const std::optional<BoxLabel>& as_written,
                   std::string_view said_before, Outline outline) {
  const bool inside =
      extent.x1 >= -kLabelTolerance && extent.y1 >= -kLabelTolerance &&
      extent.x2 <= 1 + kLabelTolerance && extent.y2 <= 1 + kLabelTolerance;
  BoxLabel box{class_index, 0, 0, 0, 0};
  if (inside && as_written) {
    // Store the box as written in the file: converting it to corners and back
    // would change the last bits.
    box = *as_written;
  } else {
    const BoxExtent clipped{
        std::clamp(extent.x1, 0.0, 1.0), std::clamp(extent.y1, 0.0, 1.0),
        std::clamp(extent.x2, 0.0, 1.0), std::clamp(extent.y2, 0.0, 1.0)};
    box.cx = static_cast<float>((clipped.x1 + clipped.x2) / 2);
    box.cy = static_cast<float>((clipped.y1 + clipped.y2) / 2);
    box.w = static_cast<float>(clipped.x2 - clipped.x1);
    box.h = static_cast<float>(clipped.y2 - clipped.y1);
  }
  if (box.w <= 0 || box.h <= 0) {
    return drop(inside ? DataFaultKind::kZeroSize : DataFaultKind::kOutside,
                extent_text(extent));
  }
  if (!seen_.insert({box.class_index, box.cx, box.cy, box.w, box.h}).second) {
    return drop(DataFaultKind::kDuplicate, std::string(said_before));
  }
  if (!inside) {
    fault(DataFaultKind::kOutOfRange, extent_text(extent),
          "box clipped to the image");
  }
  for (OutlinePoint& point : outline) {
    point = {std::clamp(point.x, 0.0, 1.0), std::clamp(point.y, 0.0, 1.0)};
  }
  result_.boxes.push_back(box);
  result_.outlines.push_back(std::move(outline));
}

void BoxRules::add_pixels(int32_t class_index, const BoxExtent& written,
                          codecs::ImageSize size, Outline outline) {
  const std::string text = extent_text(written);
  for (const double value : {written.x1, written.y1, written.x2, written.y2}) {
    if (!std::isfinite(value)) return drop(DataFaultKind::kNotFinite, text);
  }
  if (written.x1 == written.x2 || written.y1 == written.y2) {
    return drop(DataFaultKind::kZeroSize, text);
  }
  if (written.x2 < written.x1 || written.y2 < written.y1) {
    fault(DataFaultKind::kNegativeSize, text, "corners exchanged, box kept");
  }
  BoxExtent pixels = {
      std::min(written.x1, written.x2), std::min(written.y1, written.y2),
      std::max(written.x1, written.x2), std::max(written.y1, written.y2)};
  if (drawn_size_.width > 0) {
    pixels = placed(pixels);
    for (OutlinePoint& point : outline) {
      const double x = point.x * size.width, y = point.y * size.height;
      const BoxExtent at = placed({x, y, x, y});
      point = {at.x1 / size.width, at.y1 / size.height};
    }
  }
  const double w = pixels.x2 - pixels.x1;
  const double h = pixels.y2 - pixels.y1;
  const double width = size.width;
  const double height = size.height;
  const BoxLabel as_written{
      class_index, static_cast<float>((pixels.x1 + pixels.x2) / 2 / width),
      static_cast<float>((pixels.y1 + pixels.y2) / 2 / height),
      static_cast<float>(w / width), static_cast<float>(h / height)};
  add(class_index,
      {pixels.x1 / width, pixels.y1 / height, pixels.x2 / width,
       pixels.y2 / height},
      as_written, text, std::move(outline));
}

}  // namespace headroom::labels
