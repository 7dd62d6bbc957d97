#include "worker/maps/gdal_points.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "worker/maps/gdal_layer.h"

namespace headroom::maps {
namespace {

// All the way round the Earth, in a system's units; 0 where it is a plane.
double turn_of(OGRSpatialReferenceH system) {
  if (!OSRIsGeographic(system)) return 0;
  const double radians = OSRGetAngularUnits(system, nullptr);
  return radians > 0 ? 2 * std::numbers::pi / radians : 0;
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_within(double farthest) const {
    return low >= -farthest && high <= farthest;
  }
};

class PicturePoints final : public MapPoints {
 public:
  PicturePoints(ReferenceSystem points, ReferenceSystem picture,
                Transformation to_picture, const MapPlace& place)
      : points_(std::move(points)),
        picture_(std::move(picture)),
        to_picture_(std::move(to_picture)),
        transform_(place.transform),
        turn_(turn_of(picture_.get())),
        farthest_(farthest_coordinate(points_.get())) {
    const auto& t = transform_;
    determinant_ = t[1] * t[5] - t[2] * t[4];
    for (const int64_t column : {int64_t{0}, place.width}) {
      for (const int64_t row : {int64_t{0}, place.height}) {
        const auto at_column = static_cast<double>(column);
        const auto at_row = static_cast<double>(row);
        x_.add(t[0] + at_column * t[1] + at_row * t[2]);
        y_.add(t[3] + at_column * t[4] + at_row * t[5]);
      }
    }
  }

  bool has_pixels() const {
    const double farthest = farthest_coordinate(picture_.get());
    return std::isfinite(determinant_) && determinant_ != 0 &&
           x_.is_within(farthest) && y_.is_within(farthest);
  }

  std::optional<std::array<double, 4>> bounds() override {
    const GdalMessages unheard;
    const Transformation to_points(
        OCTNewCoordinateTransformation(picture_.get(), points_.get()));
    constexpr int kPointsBetweenCorners = 21;
    std::array<double, 4> box{};
    if (to_points == nullptr ||
        !OCTTransformBounds(to_points.get(), x_.low, y_.low, x_.high, y_.high,
                            &box[0], &box[1], &box[2], &box[3],
                            kPointsBetweenCorners) ||
        !std::ranges::all_of(box, [](double v) { return std::isfinite(v); })) {
      return std::nullopt;
    }
    const double turn = turn_of(points_.get());
    if (turn == 0) return box;
    if (box[2] - box[0] >= turn) {
      box[0] = -turn / 2;
      box[2] = turn / 2;
      return box;
    }
    for (const size_t side : {0, 2})
      box[side] = std::remainder(box[side], turn);
    return box;
  }

  void to_pixels(std::span<double> x, std::span<double> y) override {
    const GdalMessages unheard;
    constexpr size_t kMostAtOnce = size_t{1} << 20;
    for (size_t begin = 0; begin < x.size(); begin += kMostAtOnce) {
      const size_t count = std::min(kMostAtOnce, x.size() - begin);
      transform(x.subspan(begin, count), y.subspan(begin, count));
    }
  }

 private:
  void transform(std::span<double> x, std::span<double> y) {
    std::vector<bool> is_far(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      is_far[i] = !(std::abs(x[i]) <= farthest_ && std::abs(y[i]) <= farthest_);
      if (is_far[i]) x[i] = y[i] = 0;
    }
    std::vector<int> has_place(x.size());
    OCTTransformEx(to_picture_.get(), static_cast<int>(x.size()), x.data(),
                   y.data(), nullptr, has_place.data());
    const auto& t = transform_;
    for (size_t i = 0; i < x.size(); ++i) {
      if (is_far[i] || has_place[i] == 0) {
        x[i] = y[i] = std::numeric_limits<double>::quiet_NaN();
        continue;
      }
      const double east = near_picture(x[i]) - t[0], north = y[i] - t[3];
      x[i] = (east * t[5] - north * t[2]) / determinant_;
      y[i] = (north * t[1] - east * t[4]) / determinant_;
    }
  }

  // A map may go on beyond the 180th meridian: one longitude is many numbers.
  double near_picture(double longitude) const {
    // What lies beside the edge by rounding stays there.
    const double pixel = std::abs(transform_[1]) + std::abs(transform_[2]);
    if (turn_ == 0 ||
        (longitude >= x_.low - pixel && longitude <= x_.high + pixel)) {
      return longitude;
    }
    const double centre = (x_.low + x_.high) / 2;
    return centre + std::remainder(longitude - centre, turn_);
  }

  const ReferenceSystem points_, picture_;
  const Transformation to_picture_;
  const std::array<double, 6> transform_;
  const double turn_;      // the picture's system's
  const double farthest_;  // a point's largest coordinate
  double determinant_ = 0;
  Range x_, y_;  // the picture's, in its system
};

}  // namespace

std::unique_ptr<MapPoints> points_of_picture(const std::string& system,
                                             const MapPlace& place,
                                             std::string& reason) {
  const GdalMessages unheard;
  ReferenceSystem points = reference_system(system);
  ReferenceSystem picture = reference_system(place.reference_system);
  if (points == nullptr || picture == nullptr) {
    reason = points == nullptr ? "there is no system " + system
                               : "its coordinate reference system is not "
                                 "understood";
    return nullptr;
  }
  Transformation to_picture(
      OCTNewCoordinateTransformation(points.get(), picture.get()));
  if (to_picture == nullptr) {
    reason = "there is no way from " + system +
             " to its coordinate reference "
             "system";
    return nullptr;
  }
  auto result = std::make_unique<PicturePoints>(
      std::move(points), std::move(picture), std::move(to_picture), place);
  if (result->has_pixels()) return result;
  reason = "its tags give its pixels no size";
  return nullptr;
}

}  // namespace headroom::maps
