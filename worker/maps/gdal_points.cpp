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

// The x distance of a whole turn round the Earth; 0 if x does not wrap. Of the
// projections, only Mercator is treated as continuing beyond the 180th
// meridian.
double turn_of(OGRSpatialReferenceH system) {
  constexpr double kRound = 2 * std::numbers::pi;
  if (OSRIsGeographic(system)) {
    const double radians = OSRGetAngularUnits(system, nullptr);
    return radians > 0 ? kRound / radians : 0;
  }
  const char* const projection = OSRGetAttrValue(system, "PROJECTION", 0);
  if (projection == nullptr || std::string(projection) != SRS_PT_MERCATOR_1SP) {
    return 0;
  }
  OGRErr error = OGRERR_NONE;
  const double radius = OSRGetSemiMajor(system, &error);
  const double scale =
      OSRGetNormProjParm(system, SRS_PP_SCALE_FACTOR, 1, nullptr);
  const double metres = OSRGetLinearUnits(system, nullptr);
  const double turn = kRound * radius * scale / metres;
  return error == OGRERR_NONE && std::isfinite(turn) && turn > 0 ? turn : 0;
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
        points_turn_(turn_of(points_.get())),
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

  // Whether the picture extends beyond the 180th meridian in a projection whose
  // turn is unknown. This is detected by converting the x of each side to
  // degrees and back: the result then differs.
  bool goes_round_unseen() const {
    constexpr double kNearZero = 1.5e7;  // metres, less than half a turn
    if (turn_ > 0 || std::max(-x_.low, x_.high) *
                             OSRGetLinearUnits(picture_.get(), nullptr) <
                         kNearZero) {
      return false;
    }
    const ReferenceSystem degrees(OSRCloneGeogCS(picture_.get()));
    if (degrees == nullptr) return false;
    OSRSetAxisMappingStrategy(degrees.get(), OAMS_TRADITIONAL_GIS_ORDER);
    const Transformation there(
        OCTNewCoordinateTransformation(picture_.get(), degrees.get()));
    const Transformation back(
        OCTNewCoordinateTransformation(degrees.get(), picture_.get()));
    const double pixel = std::abs(transform_[1]) + std::abs(transform_[2]);
    return std::ranges::any_of(std::array{x_.low, x_.high}, [&](double side) {
      double x = side, y = (y_.low + y_.high) / 2;
      return there != nullptr && back != nullptr &&
             OCTTransform(there.get(), 1, &x, &y, nullptr) &&
             OCTTransform(back.get(), 1, &x, &y, nullptr) &&
             std::abs(x - side) > pixel;
    });
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
    const double turn = points_turn_;
    if (turn == 0) return box;
    if (box[2] - box[0] >= turn) {
      box[0] = -turn / 2;
      box[2] = turn / 2;
      return box;
    }
    for (const size_t side : {0, 2}) {
      box[side] = std::remainder(box[side], turn);
    }
    return box;
  }

  double turn() const override { return points_turn_; }

  void to_pixels(std::span<double> x, std::span<double> y) override {
    const GdalMessages unheard;
    const std::vector<double> given(x.begin(), x.end());
    constexpr size_t kMostAtOnce = size_t{1} << 20;
    for (size_t begin = 0; begin < x.size(); begin += kMostAtOnce) {
      const size_t count = std::min(kMostAtOnce, x.size() - begin);
      to_picture(x.subspan(begin, count), y.subspan(begin, count));
    }
    if (turn_ > 0) move_near_picture(given, x);
    const auto& t = transform_;
    for (size_t i = 0; i < x.size(); ++i) {
      const double east = x[i] - t[0], north = y[i] - t[3];
      x[i] = (east * t[5] - north * t[2]) / determinant_;
      y[i] = (north * t[1] - east * t[4]) / determinant_;
      if (!std::isfinite(x[i]) || !std::isfinite(y[i])) {
        x[i] = y[i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }

 private:
  void to_picture(std::span<double> x, std::span<double> y) {
    std::vector<bool> is_far(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      is_far[i] = !(std::abs(x[i]) <= farthest_ && std::abs(y[i]) <= farthest_);
      if (is_far[i]) x[i] = y[i] = 0;
    }
    std::vector<int> has_place(x.size());
    OCTTransformEx(to_picture_.get(), static_cast<int>(x.size()), x.data(),
                   y.data(), nullptr, has_place.data());
    for (size_t i = 0; i < x.size(); ++i) {
      if (is_far[i] || has_place[i] == 0) {
        x[i] = y[i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }

  // The distance between two vertices of a ring in the picture's units. `by` is
  // the distance in the points' units. For an edge longer than kLongestEdge,
  // returns 0: the edge probably crosses the 180th meridian and was not cut
  // there.
  double way(double by) const {
    constexpr double kLongestEdge = 0.75;  // a fraction of a whole turn
    if (points_turn_ == 0 || !(std::abs(by) <= kLongestEdge * points_turn_)) {
      return 0;
    }
    return by / points_turn_ * turn_;
  }

  // A longitude plus whole turns is the same place, and a map may continue
  // beyond the 180th meridian. Moves vertices by whole turns, so that
  // neighbours stay adjacent and the ring is near the picture. `given`: the x
  // values before conversion.
  void move_near_picture(std::span<const double> given, std::span<double> x) {
    Range ring;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!std::isfinite(x[i])) return;
      if (i > 0) {
        const double wanted = x[i - 1] + way(given[i] - given[i - 1]);
        x[i] -= std::round((x[i] - wanted) / turn_) * turn_;
      }
      ring.add(x[i]);
    }
    const double away = (ring.low + ring.high - x_.low - x_.high) / 2;
    // kMiddle makes ties (half a turn) round the same way on every machine.
    constexpr double kMiddle = 1e-6;
    const double turns = std::round(away / turn_ - kMiddle) * turn_;
    for (double& value : x) value -= turns;
  }

  const ReferenceSystem points_, picture_;
  const Transformation to_picture_;
  const std::array<double, 6> transform_;
  const double turn_;         // a whole turn in the picture's system
  const double points_turn_;  // a whole turn in the points' system
  const double farthest_;     // largest valid coordinate of a point
  double determinant_ = 0;
  Range x_, y_;  // extent of the picture in its system
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
  if (!OSRIsGeographic(points.get()) && !OSRIsProjected(points.get())) {
    reason = system +
             " has no places on a map: it is neither longitude and "
             "latitude nor a projection of them";
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
  if (!result->has_pixels()) {
    reason = "its tags give its pixels no size";
  } else if (result->goes_round_unseen()) {
    reason =
        "it goes on beyond the 180th meridian, which is known of maps in "
        "degrees or Mercator's projection alone: warp it";
  } else {
    return result;
  }
  return nullptr;
}

}  // namespace headroom::maps
