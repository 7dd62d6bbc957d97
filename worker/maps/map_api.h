// The interface of the map plugin. libheadroom_maps.so contains all use of GDAL
// and is loaded at run time (map_plugin.h), so that everything else works on a
// machine without GDAL.
//
// Errors: no exception passes through this interface; `reason` holds a message.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace headroom::maps {

inline constexpr int kMapApiVersion = 3;

// The position of a picture. A point, in pixels from the upper left corner, has
// the coordinates
//
//   x = transform[0] + column * transform[1] + row * transform[2]
//   y = transform[3] + column * transform[4] + row * transform[5]
//
// in the picture's reference system, with easting or longitude first.
struct MapPlace {
  std::array<double, 6> transform{};
  std::string reference_system;   // in the format WKT
  int64_t height = 0, width = 0;  // pixels, as stored
};

// A box in pixels of a picture.
struct MapBox {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  int class_index = 0;
  std::string class_name;
  double confidence = 0;
  std::string image;
};

// Writes boxes as polygons with the attributes class, name, confidence, image,
// x1, y1, x2, y2. In GeoJSON a polygon that crosses the 180th meridian becomes
// two.
class MapLayerWriter {
 public:
  virtual ~MapLayerWriter() = default;
  // Call it before writing the boxes of the picture at `place`. Returns why the
  // boxes cannot be converted to the layer's coordinates, "" if they can.
  virtual std::string begin(const MapPlace& place) = 0;
  struct Written {
    bool has_place = true;  // false if the box is outside the system's bounds
    std::string fault;      // why the layer cannot be written
  };
  // REQUIRES: begin() returned "".
  virtual Written write(const MapBox& box) = 0;
  // Completes the layer in its file; a layer without a file is returned in
  // `bytes`. Returns why that failed, "" if it succeeded.
  virtual std::string finish(std::string& bytes) = 0;
};

// Converts points of a reference system to pixels of one picture.
class MapPoints {
 public:
  virtual ~MapPoints() = default;
  // West, south, east and north of the picture in the points' system. West is
  // greater than east if the picture crosses the 180th meridian. Returns
  // nullopt if the bounds are not known.
  virtual std::optional<std::array<double, 4>> bounds() = 0;
  // The x distance of a whole turn round the Earth in the points' system; 0 if
  // that is not known.
  virtual double turn() const = 0;
  // Converts the coordinates of one ring, in order, to columns and rows. If
  // both systems wrap round the Earth, the ring stays in one piece and is moved
  // as near to the picture as whole turns allow. A point without a place in the
  // picture's system becomes NaN in both x and y. REQUIRES: `x` and `y` have
  // equal sizes.
  virtual void to_pixels(std::span<double> x, std::span<double> y) = 0;
};

class MapApi {
 public:
  virtual ~MapApi() = default;
  // Reads the header of a GeoTIFF. Returns nullopt and sets `reason` if the
  // file has no map position.
  virtual std::optional<MapPlace> place_of(const std::string& file,
                                           std::string& reason) = 0;
  // `system` is the name of the points' reference system, for example
  // "EPSG:32633". Returns nullptr and sets `reason` if conversion is
  // impossible.
  virtual std::unique_ptr<MapPoints> points_in(const std::string& system,
                                               const MapPlace& place,
                                               std::string& reason) = 0;
  // GeoJSON (RFC 7946): WGS 84 longitude and latitude, to 1e-9 degrees, in
  // memory. Returns nullptr and sets `reason` on failure.
  virtual std::unique_ptr<MapLayerWriter> make_geojson(std::string& reason) = 0;
  // A GeoPackage in the reference system of the first picture; replaces an
  // existing file. Returns nullptr and sets `reason` on failure.
  virtual std::unique_ptr<MapLayerWriter> make_geopackage(
      const std::string& file, std::string& reason) = 0;
};

// The name of the plugin's only exported function. It takes a version, and
// returns nullptr if the plugin's version differs.
inline constexpr const char* kMapApiFactory = "headroom_map_api";

}  // namespace headroom::maps
