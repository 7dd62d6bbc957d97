// A plugin of maps without GDAL. Every file without "plain" in its name has
// coordinates. They are in a plane, so no library is needed to convert points.
#pragma once

#include <cmath>
#include <memory>
#include <string>

#include "worker/maps/map_api.h"

namespace headroom {

class FakeMaps : public maps::MapApi {
 public:
  // A pixel is 2 wide and 4 high. "right" in a file's name moves the map east
  // by the map's width, "low" moves it south by the map's height.
  explicit FakeMaps(int64_t height, int64_t width)
      : height_(height), width_(width) {}

  std::optional<maps::MapPlace> place_of(const std::string& file,
                                         std::string& reason) override {
    if (file.find("plain") != std::string::npos) {
      reason = "it is no GeoTIFF";
      return std::nullopt;
    }
    maps::MapPlace place;
    place.transform = {1000, 2, 0, 5000, 0, -4};
    if (file.find("right") != std::string::npos) {
      place.transform[0] += 2 * static_cast<double>(width_);
    }
    if (file.find("low") != std::string::npos) {
      place.transform[3] -= 4 * static_cast<double>(height_);
    }
    place.reference_system = "plane";
    place.height = height_;
    place.width = width_;
    return place;
  }

  std::unique_ptr<maps::MapPoints> points_in(const std::string& system,
                                             const maps::MapPlace& place,
                                             std::string& reason) override {
    if (system == "EPSG:2") {
      reason = "there is no system EPSG:2";
      return nullptr;
    }
    return std::make_unique<Points>(place);
  }

  std::unique_ptr<maps::MapLayerWriter> make_geojson(
      std::string& reason) override {
    reason = "it writes none";
    return nullptr;
  }
  std::unique_ptr<maps::MapLayerWriter> make_geopackage(
      const std::string&, std::string& reason) override {
    return make_geojson(reason);
  }

 private:
  class Points : public maps::MapPoints {
   public:
    explicit Points(const maps::MapPlace& place) : place_(place) {}
    std::optional<std::array<double, 4>> bounds() override {
      const auto& t = place_.transform;
      return std::array<double, 4>{
          t[0], t[3] + static_cast<double>(place_.height) * t[5],
          t[0] + static_cast<double>(place_.width) * t[1], t[3]};
    }
    double turn() const override { return 0; }
    void to_pixels(std::span<double> x, std::span<double> y) override {
      const auto& t = place_.transform;
      for (size_t i = 0; i < x.size(); ++i) {
        const bool is_far = std::abs(x[i]) > 1e9;
        x[i] = is_far ? NAN : (x[i] - t[0]) / t[1];
        y[i] = is_far ? NAN : (y[i] - t[3]) / t[5];
      }
    }

   private:
    const maps::MapPlace place_;
  };

  int64_t height_, width_;
};

}  // namespace headroom
