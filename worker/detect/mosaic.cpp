#include "worker/detect/mosaic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <opencv2/core.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "worker/data/codecs/geo_tags.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/level_reader.h"
#include "worker/data/tiles/tile_cutter.h"
#include "worker/detect/image_sources.h"

namespace headroom::detect {
namespace {

using maps::MapPlace;
using metrics::Corners;
using tiles::TileRect;

constexpr uint8_t kPadding = 114;  // the gray of a letterbox

int64_t right_of(const TileRect& rect) { return rect.x + rect.width; }
int64_t bottom_of(const TileRect& rect) { return rect.y + rect.height; }

// The number of columns or rows that two rectangles share: 0 if they touch,
// negative if there is a gap.
int64_t shared_columns(const TileRect& a, const TileRect& b) {
  return std::min(right_of(a), right_of(b)) - std::max(a.x, b.x);
}
int64_t shared_rows(const TileRect& a, const TileRect& b) {
  return std::min(bottom_of(a), bottom_of(b)) - std::max(a.y, b.y);
}
bool overlap(const TileRect& a, const TileRect& b) {
  return shared_columns(a, b) > 0 && shared_rows(a, b) > 0;
}

// A rounded corner differs from the exact one by up to half a pixel.
constexpr double kTolerance = 0.5 + 1e-3;

bool touch(const MosaicPart& a, const MosaicPart& b) {
  const auto reaches = [](double from, int64_t length, double other) {
    return other <= from + static_cast<double>(length) + kTolerance;
  };
  return reaches(a.x, a.width, b.x) && reaches(b.x, b.width, a.x) &&
         reaches(a.y, a.height, b.y) && reaches(b.y, b.height, a.y);
}

// Whether two maps show the same area: they share more than half of the smaller
// map, which neighbours never do.
bool show_the_same(const TileRect& a, const TileRect& b) {
  if (!overlap(a, b)) return false;
  const int64_t shared = shared_columns(a, b) * shared_rows(a, b);
  return 2 * shared > std::min(a.height * a.width, b.height * b.width);
}

// Exchanges rows and columns.
TileRect turned(const TileRect& rect) {
  return {rect.x, rect.y, rect.width, rect.height};
}

// Whether both maps have the same pixel grid: the difference of their pixel
// sizes adds up to less than 0.05 pixels over the longest side.
bool have_one_grid(const MapPlace& a, const MapPlace& b) {
  if (a.reference_system != b.reference_system) return false;
  const auto longest =
      static_cast<double>(std::max({a.height, a.width, b.height, b.width}));
  const double pixel = std::sqrt(std::abs(a.transform[1] * a.transform[5] -
                                          a.transform[2] * a.transform[4]));
  return pixel > 0 && std::ranges::all_of(std::array{1, 2, 4, 5}, [&](int i) {
           const auto at = static_cast<size_t>(i);
           return std::abs(a.transform[at] - b.transform[at]) * longest <
                  pixel / 20;
         });
}

// The corner of `place`, in pixels of `grid`.
std::pair<double, double> corner_in(const MapPlace& grid,
                                    const MapPlace& place) {
  const auto& t = grid.transform;
  const double x = place.transform[0] - t[0], y = place.transform[3] - t[3];
  const double determinant = t[1] * t[5] - t[2] * t[4];
  return {(x * t[5] - y * t[2]) / determinant,
          (y * t[1] - x * t[4]) / determinant};
}

// Rounds a value to a whole number if they differ only by a rounding error.
double whole_if_near(double value) {
  constexpr double kRounding = 1e-3;
  const double whole = std::round(value);
  return std::abs(value - whole) < kRounding ? whole : value;
}

// Union-find: the groups of parts that touch directly or through others.
class Groups {
 public:
  explicit Groups(size_t size) : above_(size) {
    std::iota(above_.begin(), above_.end(), size_t{0});
  }
  size_t root_of(size_t one) {
    while (above_[one] != one) one = above_[one] = above_[above_[one]];
    return one;
  }
  void join(size_t a, size_t b) { above_[root_of(b)] = root_of(a); }

 private:
  std::vector<size_t> above_;
};

// Calls `use` with each pair of parts that touch.
template <typename Use>
void over_neighbours(const std::vector<MosaicPart>& parts, const Use& use) {
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return parts[a].x < parts[b].x; });
  for (size_t i = 0; i < order.size(); ++i) {
    const MosaicPart& left = parts[order[i]];
    const double right = left.x + static_cast<double>(left.width) + 1;
    for (size_t j = i + 1; j < order.size() && parts[order[j]].x <= right;
         ++j) {
      if (touch(left, parts[order[j]])) use(order[i], order[j]);
    }
  }
}

std::vector<TileRect> rects_of(const std::vector<MosaicPart>& parts) {
  std::vector<TileRect> rects;
  for (const MosaicPart& part : parts) rects.push_back(part.rect());
  return rects;
}

// Returns the parts, except those that show the area of an earlier part.
std::vector<MosaicPart> without_repeats(
    const std::vector<MosaicPart>& parts,
    const std::function<void(size_t, size_t)>& on_repeat) {
  const std::vector<TileRect> rects = rects_of(parts);
  // Pairs of maps that show the same area, the later map first.
  std::vector<std::pair<size_t, size_t>> pairs;
  over_neighbours(parts, [&](size_t a, size_t b) {
    if (show_the_same(rects[a], rects[b])) {
      pairs.emplace_back(std::max(a, b), std::min(a, b));
    }
  });
  std::ranges::sort(pairs);
  std::vector<bool> is_left_out(parts.size());
  for (const auto& [later, earlier] : pairs) {
    if (is_left_out[later] || is_left_out[earlier]) continue;
    is_left_out[later] = true;
    on_repeat(parts[later].image, parts[earlier].image);
  }
  std::vector<MosaicPart> kept;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!is_left_out[i]) kept.push_back(parts[i]);
  }
  return kept;
}

// The mosaic of `parts`, with positions relative to the upper left corner of
// the area that the parts cover.
Mosaic mosaic_of(std::vector<MosaicPart> parts) {
  double left = parts.front().x, top = parts.front().y;
  for (const MosaicPart& part : parts) {
    left = std::min(left, part.x);
    top = std::min(top, part.y);
  }
  for (MosaicPart& part : parts) {
    part.x = whole_if_near(part.x - left);
    part.y = whole_if_near(part.y - top);
  }
  std::ranges::sort(parts, {}, &MosaicPart::image);
  return {std::move(parts)};
}

// Extends the range of a seam by half a tile at an end where the mosaic
// continues, so that an object at the corner of several parts is in one tile.
struct Span {
  int64_t begin = 0, end = 0;
};
Span with_surroundings(const Span& seam, int64_t x, int64_t width,
                       int64_t tile_height,
                       const std::vector<TileRect>& parts) {
  Span span = seam;
  const int64_t half = tile_height / 2;
  for (const TileRect& part : parts) {
    const bool is_above = overlap(part, {seam.begin - half, x, half, width});
    const bool is_below = overlap(part, {seam.end, x, half, width});
    if (is_above) {
      span.begin = std::min(span.begin, std::max(part.y, seam.begin - half));
    }
    if (is_below) {
      span.end = std::max(span.end, std::min(bottom_of(part), seam.end + half));
    }
  }
  return span;
}

// The tiles across the seam between two parts, `a` beside `b`.
std::vector<TileRect> tiles_between(const TileRect& a, const TileRect& b,
                                    const std::vector<TileRect>& parts,
                                    const DetectionTiles& tiles) {
  const int64_t shared =
      std::llround(static_cast<double>(tiles.width) * tiles.overlap);
  if (shared_columns(a, b) >= shared) return {};
  const int64_t left = std::min(a.x, b.x);
  const int64_t right = std::max(right_of(a), right_of(b));
  const int64_t width = std::min(tiles.width, right - left);
  const int64_t seam =
      (std::max(a.x, b.x) + std::min(right_of(a), right_of(b))) / 2;
  const int64_t x = std::clamp(seam - width / 2, left, right - width);
  const Span span = with_surroundings(
      {std::max(a.y, b.y), std::min(bottom_of(a), bottom_of(b))}, x, width,
      tiles.height, parts);
  const int64_t length = span.end - span.begin;
  std::vector<TileRect> across;
  for (const int64_t y :
       tiles::tile_starts(length, tiles.height, tiles.overlap)) {
    across.push_back(
        {span.begin + y, x, std::min(tiles.height, length), width});
  }
  return across;
}

// Whether the box touches a border of its tile beyond which the mosaic
// continues. Box and tile are relative to (x, y), which need not be whole.
bool is_cut_in(const Mosaic& mosaic, const Corners& box, const TileRect& tile,
               double x, double y) {
  const auto left = static_cast<double>(tile.x);
  const auto top = static_cast<double>(tile.y);
  const auto right = static_cast<double>(right_of(tile));
  const auto bottom = static_cast<double>(bottom_of(tile));
  const double column = x + std::clamp((box.x1 + box.x2) / 2.0, left, right);
  const double row = y + std::clamp((box.y1 + box.y2) / 2.0, top, bottom);
  return (box.x1 < left + kCutBorder && mosaic.has_pixels(x + left - 1, row)) ||
         (box.x2 > right - kCutBorder &&
          mosaic.has_pixels(x + right + 1, row)) ||
         (box.y1 < top + kCutBorder &&
          mosaic.has_pixels(column, y + top - 1)) ||
         (box.y2 > bottom - kCutBorder &&
          mosaic.has_pixels(column, y + bottom + 1));
}

// The samples that a pixel without data has when it is read (valid pixels may
// have the same samples); empty if no pixel can have the value that the file
// defines.
std::vector<int> no_data_samples(const std::filesystem::path& file,
                                 const codecs::ImageLimits& limits) {
  auto value = codecs::no_data_of(file);
  if (!value || !std::isfinite(*value)) return {};
  // The text may have more digits than the pixels' type.
  if (std::abs(*value) <= std::numeric_limits<float>::max()) {
    value = static_cast<float>(*value);
  }
  std::vector<int> samples;
  for (const ValueRange& range : limits.ranges) {
    samples.push_back(codecs::LevelScale(range).level_of(*value));
  }
  if (samples.empty()) {
    const int most = codecs::has_deep_samples(file) ? codecs::kMostLevel : 255;
    if (*value < 0 || *value > most || *value != std::floor(*value)) return {};
    samples.push_back(static_cast<int>(std::lround(*value * 255 / most)));
  }
  samples.resize(static_cast<size_t>(limits.bands), samples.front());
  return samples;
}

cv::Mat mask_of_data(const cv::Mat& pixels, const std::vector<int>& no_data) {
  cv::Mat mask(pixels.size(), CV_8U, cv::Scalar(no_data.empty() ? 255 : 0));
  cv::Mat band, differs;
  for (size_t i = 0; i < no_data.size(); ++i) {
    cv::extractChannel(pixels, band, static_cast<int>(i));
    cv::compare(band, no_data[i], differs, cv::CMP_NE);
    mask |= differs;
  }
  return mask;
}

bool holds(const MosaicPart& part, double x, double y, double tolerance) {
  const auto lies_in = [tolerance](double place, double begin, int64_t length) {
    return place >= begin - tolerance &&
           place <= begin + static_cast<double>(length) + tolerance;
  };
  return lies_in(x, part.x, part.width) && lies_in(y, part.y, part.height);
}

}  // namespace

TileRect MosaicPart::rect() const {
  return {std::llround(y), std::llround(x), height, width};
}

bool Mosaic::has_pixels(double x, double y) const {
  return std::ranges::any_of(parts, [&](const MosaicPart& part) {
    return holds(part, x, y, kTolerance);
  });
}

void MosaicFinder::add(size_t image, const MapPlace& place) {
  auto kind = std::ranges::find_if(kinds_, [&](const Kind& each) {
    return have_one_grid(each.first, place);
  });
  if (kind == kinds_.end()) {
    kinds_.push_back({place, {}});
    kind = std::prev(kinds_.end());
  }
  const auto [x, y] = corner_in(kind->first, place);
  kind->parts.push_back({image, x, y, place.height, place.width});
}

std::vector<Mosaic> MosaicFinder::find(
    const std::function<void(size_t, size_t)>& on_repeat) const {
  std::vector<Mosaic> mosaics;
  for (const Kind& kind : kinds_) {
    const std::vector<MosaicPart> parts =
        without_repeats(kind.parts, on_repeat);
    Groups groups(parts.size());
    over_neighbours(parts, [&](size_t a, size_t b) { groups.join(a, b); });
    std::map<size_t, std::vector<MosaicPart>> by_root;
    for (size_t i = 0; i < parts.size(); ++i) {
      by_root[groups.root_of(i)].push_back(parts[i]);
    }
    for (auto& [root, group] : by_root) {
      if (group.size() > 1) mosaics.push_back(mosaic_of(std::move(group)));
    }
  }
  return mosaics;
}

std::vector<TileRect> seam_tiles(const Mosaic& mosaic,
                                 const DetectionTiles& tiles) {
  const std::vector<TileRect> rects = rects_of(mosaic.parts);
  std::vector<TileRect> turned_rects;
  for (const TileRect& rect : rects) turned_rects.push_back(turned(rect));
  const DetectionTiles turned_tiles{
      .height = tiles.width, .width = tiles.height, .overlap = tiles.overlap};
  std::set<std::array<int64_t, 4>> known;
  std::vector<TileRect> all;
  const auto take = [&](const TileRect& tile) {
    if (known.insert({tile.y, tile.x, tile.height, tile.width}).second) {
      all.push_back(tile);
    }
  };
  over_neighbours(mosaic.parts, [&](size_t a, size_t b) {
    const int64_t columns = shared_columns(rects[a], rects[b]);
    const int64_t rows = shared_rows(rects[a], rects[b]);
    if (columns < rows && rows > 0) {
      std::ranges::for_each(tiles_between(rects[a], rects[b], rects, tiles),
                            take);
    } else if (columns > 0) {
      for (const TileRect& tile : tiles_between(
               turned_rects[a], turned_rects[b], turned_rects, turned_tiles)) {
        take(turned(tile));
      }
    }
  });
  return all;
}

const MosaicReader::Band& MosaicReader::band_of(size_t part,
                                                codecs::PixelRows rows) {
  Band& band = bands_[part];
  if (band.rows == rows && !band.pixels.empty()) return band;
  const MosaicPart& from = mosaic_.parts[part];
  codecs::ImageResult read = tiles::cut_window(
      files_[from.image], {rows.begin, 0, rows.size(), from.width}, limits_);
  if (!read.ok()) refuse_changed(files_[from.image], read.reason);
  if (read.size.height != from.height || read.size.width != from.width) {
    refuse_changed(files_[from.image], tiles::kOtherSize);
  }
  // All row bands of a part have the same no-data value.
  if (band.pixels.empty()) {
    band.no_data = no_data_samples(files_[from.image], limits_);
  }
  band.rows = rows;
  band.pixels = std::move(read.pixels);
  return band;
}

cv::Mat MosaicReader::read(const TileRect& rect) {
  cv::Mat pixels = codecs::plain_picture(static_cast<int>(rect.height),
                                         static_cast<int>(rect.width),
                                         limits_.type(), kPadding);
  struct Piece {
    cv::Mat from, to;
    const std::vector<int>& no_data;
  };
  std::vector<Piece> pieces;  // last part first; the first part is on top
  std::set<size_t> used;
  for (size_t i = mosaic_.parts.size(); i-- > 0;) {
    const TileRect part = mosaic_.parts[i].rect();
    if (!overlap(part, rect)) continue;
    used.insert(i);
    const int64_t x = std::max(part.x, rect.x), y = std::max(part.y, rect.y);
    const auto width = static_cast<int>(shared_columns(part, rect));
    const auto height = static_cast<int>(shared_rows(part, rect));
    const Band& band = band_of(i, {y - part.y, y - part.y + height});
    pieces.push_back(
        {band.pixels(cv::Rect(static_cast<int>(x - part.x), 0, width, height)),
         pixels(cv::Rect(static_cast<int>(x - rect.x),
                         static_cast<int>(y - rect.y), width, height)),
         band.no_data});
  }
  for (const Piece& piece : pieces) piece.from.copyTo(piece.to);
  if (pieces.size() > 1 && std::ranges::any_of(pieces, [](const Piece& piece) {
        return !piece.no_data.empty();
      })) {
    for (const Piece& piece : pieces) {
      piece.from.copyTo(piece.to, mask_of_data(piece.from, piece.no_data));
    }
  }
  std::erase_if(bands_,
                [&](const auto& band) { return !used.contains(band.first); });
  return pixels;
}

std::vector<std::vector<metrics::Detection>> merge_mosaic(
    const Mosaic& mosaic, const MosaicFindings& findings,
    const MergeOptions& options) {
  std::vector<TileDetection> all;
  std::vector<size_t> owners;  // the part that each box belongs to
  const auto add = [&](const metrics::Detection& one, const TileRect& tile,
                       double x, double y, size_t owner) {
    all.push_back({one, is_cut_in(mosaic, one.box, tile, x, y), x, y});
    owners.push_back(owner);
  };
  // Returns the first part that satisfies `suits` and contains the box's
  // centre. If there is none, returns the first such part that is within
  // kTolerance of the centre, else parts.size().
  const auto part_with = [&](const TileDetection& one, const auto& suits) {
    const Corners& box = one.detection.box;
    const double column = one.x + (box.x1 + box.x2) / 2.0;
    const double row = one.y + (box.y1 + box.y2) / 2.0;
    for (const double tolerance : {0.0, kTolerance}) {
      for (size_t part = 0; part < mosaic.parts.size(); ++part) {
        if (holds(mosaic.parts[part], column, row, tolerance) && suits(part)) {
          return part;
        }
      }
    }
    return mosaic.parts.size();
  };
  for (size_t p = 0; p < mosaic.parts.size(); ++p) {
    const MosaicPart& part = mosaic.parts[p];
    const TileFindings& tiles = findings.parts[p];
    for (size_t i = 0; i < tiles.places.size(); ++i) {
      if (!tiles.found[i]) continue;
      for (const metrics::Detection& one : *tiles.found[i]) {
        add(one, tiles.places[i], part.x, part.y, p);
      }
    }
  }
  for (size_t i = 0; i < findings.on_seams.size(); ++i) {
    const TileRect& tile = findings.seams[i];
    const auto x = static_cast<double>(tile.x), y = static_cast<double>(tile.y);
    for (const metrics::Detection& one : findings.on_seams[i]) {
      const size_t part =
          part_with({one, false, x, y}, [](size_t) { return true; });
      if (part == mosaic.parts.size()) continue;  // centre in the gray area
      add(one, {0, 0, tile.height, tile.width}, x, y, part);
    }
  }
  std::vector<std::vector<metrics::Detection>> boxes(mosaic.parts.size());
  const auto has_room = [&](size_t part) {
    return static_cast<int64_t>(boxes[part].size()) < options.max_detections;
  };
  for (const size_t index : kept_boxes(all, options)) {
    const TileDetection& one = all[index];
    // If the box's part already has max_detections boxes, the box goes to
    // another part that contains its centre, because merging may have dropped a
    // box of that part in favour of this box.
    const size_t part =
        has_room(owners[index]) ? owners[index] : part_with(one, has_room);
    if (part == mosaic.parts.size()) continue;
    boxes[part].push_back(one.detection);
    boxes[part].back().box =
        moved(one.detection.box, one.x - mosaic.parts[part].x,
              one.y - mosaic.parts[part].y);
  }
  return boxes;
}

}  // namespace headroom::detect
