#include "worker/data/augment/affine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "worker/data/augment/row_kernels.h"
#include "worker/data/augment/warp_map.h"

namespace headroom::augment {
namespace {

// `Level` is the type of one band of a pixel.
template <typename Level>
class Tiles {
 public:
  Tiles(const std::vector<TileView>& tiles, int bands, const Level* gray)
      : tiles_(tiles), bands_(bands), gray_(gray) {}

  // Tries the tile of the previous pixel first, because neighbours are mostly
  // in the same tile.
  const Level* pixel_at(int x, int y) {
    if (has(last_, x, y)) return address(last_, x, y);
    for (size_t i = 0; i < tiles_.size(); ++i) {
      if (!has(i, x, y)) continue;
      last_ = i;
      return address(i, x, y);
    }
    return gray_;
  }

 private:
  bool has(size_t i, int x, int y) const {
    if (i >= tiles_.size()) return false;
    const TileView& tile = tiles_[i];
    return x >= tile.begin_x && x < tile.end_x && y >= tile.begin_y &&
           y < tile.end_y;
  }
  const Level* address(size_t i, int x, int y) const {
    const TileView& tile = tiles_[i];
    const uint8_t* const row = tile.pixels + (y - tile.top) * tile.step;
    return reinterpret_cast<const Level*>(row) +
           ptrdiff_t{bands_} * (x - tile.left);
  }

  const std::vector<TileView>& tiles_;
  int bands_;
  const Level* gray_;
  size_t last_ = 0;
};

// Computes a row of a warped picture with any number of bands. Uses the
// arithmetic of RowKernels::fetch, which handles three bands, so that a band
// gets the same bytes as a colour would.
//
// Sets target[bands * i ..] to the pixel at (xs[i], ys[i]), given in 32nds of a
// pixel; gray outside all tiles. Tiles must not overlap and must have `bands`
// bands. REQUIRES: xs and ys have the same length.
template <typename Level>
void fetch_bands(const std::vector<int>& xs, const std::vector<int>& ys,
                 const std::vector<TileView>& tiles, int bands, Level* target) {
  const std::vector<Level> outside(static_cast<size_t>(bands),
                                   kernels::kFillLevel<Level>);
  Tiles<Level> pixels(tiles, bands, outside.data());
  for (size_t i = 0; i < xs.size(); ++i, target += bands) {
    const int x = xs[i] >> kernels::kPlaceBits,
              y = ys[i] >> kernels::kPlaceBits;
    const int along_x = xs[i] & (kernels::kPlaces - 1),
              along_y = ys[i] & (kernels::kPlaces - 1);
    const Level* const upper_left = pixels.pixel_at(x, y);
    const Level* const upper_right = pixels.pixel_at(x + 1, y);
    const Level* const lower_left = pixels.pixel_at(x, y + 1);
    const Level* const lower_right = pixels.pixel_at(x + 1, y + 1);
    for (int band = 0; band < bands; ++band) {
      target[band] = kernels::blended<Level>(
          upper_left[band], upper_right[band], lower_left[band],
          lower_right[band], along_x, along_y);
    }
  }
}

constexpr double kMinSidePixels = 2;
constexpr double kMinAreaRatio = 0.1;
constexpr double kMaxAspect = 100;
constexpr double kEpsilon = 1e-16;

double radians(double degrees) { return degrees * std::numbers::pi / 180; }

double symmetric(sampling::RandomStream& draws, double bound) {
  return draws.uniform(-bound, bound);
}

// Corners of the bounding box of a box's four transformed corners.
labels::PixelBox moved_hull(const labels::PixelBox& box,
                            const cv::Matx33d& matrix) {
  const std::array<cv::Vec3d, 4> corners{
      cv::Vec3d{box.x1, box.y1, 1}, cv::Vec3d{box.x2, box.y2, 1},
      cv::Vec3d{box.x1, box.y2, 1}, cv::Vec3d{box.x2, box.y1, 1}};
  labels::PixelBox hull{box.class_index, HUGE_VAL, HUGE_VAL, -HUGE_VAL,
                        -HUGE_VAL};
  for (const cv::Vec3d& corner : corners) {
    const cv::Vec3d moved = matrix * corner;
    const double x = moved[0] / moved[2];
    const double y = moved[1] / moved[2];
    hull.x1 = std::min(hull.x1, x);
    hull.x2 = std::max(hull.x2, x);
    hull.y1 = std::min(hull.y1, y);
    hull.y2 = std::max(hull.y2, y);
  }
  return hull;
}

bool is_worth_keeping(const labels::PixelBox& before,
                      const labels::PixelBox& after, double scale) {
  const double w = after.width();
  const double h = after.height();
  if (w <= kMinSidePixels || h <= kMinSidePixels) return false;
  const double area_before = before.width() * scale * (before.height() * scale);
  const double aspect = std::max(w / (h + kEpsilon), h / (w + kEpsilon));
  return w * h / (area_before + kEpsilon) > kMinAreaRatio &&
         aspect < kMaxAspect;
}

}  // namespace

Warp draw_warp(const configs::Hyperparameters& hyp, codecs::ImageSize source,
               codecs::ImageSize target, sampling::RandomStream& draws) {
  const cv::Matx33d centre(1, 0, -source.width / 2.0,   //
                           0, 1, -source.height / 2.0,  //
                           0, 0, 1);
  cv::Matx33d perspective = cv::Matx33d::eye();
  perspective(2, 0) = symmetric(draws, hyp.perspective);
  perspective(2, 1) = symmetric(draws, hyp.perspective);

  Warp warp;
  const double angle = radians(symmetric(draws, hyp.degrees));
  warp.scale = draws.uniform(1 - hyp.scale, 1 + hyp.scale);
  const double along = warp.scale * std::cos(angle);
  const double across = warp.scale * std::sin(angle);
  const cv::Matx33d rotation(along, across, 0,   //
                             -across, along, 0,  //
                             0, 0, 1);
  cv::Matx33d shear = cv::Matx33d::eye();
  shear(0, 1) = std::tan(radians(symmetric(draws, hyp.shear)));
  shear(1, 0) = std::tan(radians(symmetric(draws, hyp.shear)));

  cv::Matx33d translation = cv::Matx33d::eye();
  translation(0, 2) = (0.5 + symmetric(draws, hyp.translate)) * target.width;
  translation(1, 2) = (0.5 + symmetric(draws, hyp.translate)) * target.height;

  warp.matrix = translation * shear * rotation * perspective * centre;
  return warp;
}

std::vector<labels::PixelBox> warp_boxes(
    const std::vector<labels::PixelBox>& boxes, const Warp& warp,
    codecs::ImageSize target) {
  std::vector<labels::PixelBox> result;
  for (const labels::PixelBox& box : boxes) {
    std::vector<labels::PixelBox> moved{moved_hull(box, warp.matrix)};
    labels::clip_boxes(moved, target.width, target.height);
    if (is_worth_keeping(box, moved[0], warp.scale)) {
      result.push_back(moved[0]);
    }
  }
  return result;
}

bool is_identity(const Warp& warp) { return warp.matrix == cv::Matx33d::eye(); }

codecs::PixelRows rows_to_warp(const Warp& warp, int width,
                               codecs::PixelRows rows,
                               const PlacedPicture& picture) {
  return WarpMap(warp.matrix, width)
      .touched_rows(rows, picture.left, picture.top, picture.size);
}

codecs::PixelRows rows_to_warp(const Warp& warp, int width,
                               codecs::PixelRows rows, codecs::ImageSize size) {
  return rows_to_warp(warp, width, rows, {size, 0, 0, {0, size.height}});
}

cv::Mat warp_tiles(const std::vector<PlacedTile>& tiles, const Warp& warp,
                   int width, codecs::PixelRows rows, int type) {
  std::vector<TileView> views;
  for (const PlacedTile& tile : tiles) {
    if (tile.seen.empty()) continue;
    TileView view;
    view.pixels = tile.pixels.ptr();
    view.step = static_cast<ptrdiff_t>(tile.pixels.step);
    view.left = tile.origin.x;
    view.top = tile.origin.y;
    view.begin_x = tile.seen.x;
    view.end_x = tile.seen.x + tile.seen.width;
    view.begin_y = tile.seen.y;
    view.end_y = tile.seen.y + tile.seen.height;
    views.push_back(view);
  }
  const WarpMap map(warp.matrix, width);
  const auto count = static_cast<size_t>(width);
  std::vector<int> xs(count), ys(count), kinds(count);
  std::vector<uint8_t> row(3 * count + 1);
  cv::Mat result(static_cast<int>(rows.size()), width, type);
  for (int y = 0; y < result.rows; ++y) {
    map.place_row(rows.begin + y, xs.data(), ys.data());
    if (result.depth() == CV_16U) {
      fetch_bands(xs, ys, views, result.channels(), result.ptr<uint16_t>(y));
      continue;
    }
    if (type != CV_8UC3) {
      fetch_bands(xs, ys, views, result.channels(), result.ptr<uint8_t>(y));
      continue;
    }
    row_kernels().fetch(xs.data(), ys.data(), width, views.data(),
                        static_cast<int>(views.size()), kernels::kFillGray,
                        kinds.data(), row.data());
    std::copy_n(row.data(), 3 * count, result.ptr<uint8_t>(y));
  }
  return result;
}

labels::BoxedImage apply_warp(const labels::BoxedImage& image, const Warp& warp,
                              codecs::ImageSize target) {
  labels::BoxedImage result;
  result.boxes = warp_boxes(image.boxes, warp, target);
  const bool same_size =
      image.pixels.rows == target.height && image.pixels.cols == target.width;
  if (same_size && is_identity(warp)) {
    result.pixels = image.pixels;
    return result;
  }
  const codecs::ImageSize size{image.pixels.rows, image.pixels.cols};
  result.pixels =
      warp_tiles({placed_tile(image.pixels, {size, 0, 0, {0, size.height}})},
                 warp, target.width, {0, target.height}, image.pixels.type());
  return result;
}

}  // namespace headroom::augment
