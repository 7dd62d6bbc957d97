// The map plugin's interface: libheadroom_maps.so, which has all of GDAL, is
// loaded at run time (map_plugin.h), so that a machine without GDAL has
// everything else.
//
// Errors: nothing is thrown through this interface; a reason is a message.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace headroom::maps {

inline constexpr int kMapApiVersion = 3;

// Where a picture lies. A point of it, in pixels from its upper left corner,
// has the coordinates
//
//   x = transform[0] + column * transform[1] + row * transform[2]
//   y = transform[3] + column * transform[4] + row * transform[5]
//
// in its coordinate reference system: east or longitude first.
struct MapPlace {
  std::array<double, 6> transform{};
  std::string reference_system;   // WKT
  int64_t height = 0, width = 0;  // pixels, as stored
};

// A box of a picture, in its pixels.
struct MapBox {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  int class_index = 0;
  std::string class_name;
  double confidence = 0;
  std::string image;
};

// Boxes as polygons with the attributes class, name, confidence, image, x1, y1,
// x2, y2. A polygon that crosses the 180th meridian is two in GeoJSON.
class MapLayerWriter {
 public:
  virtual ~MapLayerWriter() = default;
  // The boxes that follow are of a picture there. Returns why they have no
  // coordinates in this layer; "": they have.
  virtual std::string begin(const MapPlace& place) = 0;
  // REQUIRES: begin() returned "".
  struct Written {
    bool has_place = true;  // false: the box lies beyond the system's bounds
    std::string fault;      // why the layer cannot be written
  };
  virtual Written write(const MapBox& box) = 0;
  // Afterwards the layer is whole: in its file, or, without one, in `bytes`.
  // Returns why it could not be done.
  virtual std::string finish(std::string& bytes) = 0;
};

// Points of a reference system, seen from a picture.
class MapPoints {
 public:
  virtual ~MapPoints() = default;
  // The picture's west, south, east and north in the points' system. West lies
  // above east where the 180th meridian is between them. None: not known.
  virtual std::optional<std::array<double, 4>> bounds() = 0;
  // All the way round the Earth in the points' x; 0 where that is not known.
  virtual double turn() const = 0;
  // The coordinates of one ring, in order, become columns and rows. Where both
  // systems go round the Earth, the ring stays in one piece and lies as near to
  // the picture as its turns allow. What has no place in the picture's system
  // is NaN, in x and y alike, afterwards. REQUIRES: spans of one size.
  virtual void to_pixels(std::span<double> x, std::span<double> y) = 0;
};

class MapApi {
 public:
  virtual ~MapApi() = default;
  // Reads a GeoTIFF's header. None: see `reason`.
  virtual std::optional<MapPlace> place_of(const std::string& file,
                                           std::string& reason) = 0;
  // `system`: OGC's name of the points', "EPSG:32633". Null: see `reason`.
  virtual std::unique_ptr<MapPoints> points_in(const std::string& system,
                                               const MapPlace& place,
                                               std::string& reason) = 0;
  // GeoJSON (RFC 7946): longitude and latitude in WGS 84, to 1e-9 degrees. It
  // has no file. Null: see `reason`.
  virtual std::unique_ptr<MapLayerWriter> make_geojson(std::string& reason) = 0;
  // A GeoPackage in the first picture's reference system, in place of a file
  // that is there. Null: see `reason`.
  virtual std::unique_ptr<MapLayerWriter> make_geopackage(
      const std::string& file, std::string& reason) = 0;
};

// The one function that the plugin exports takes a version; null: it is of
// another one.
inline constexpr const char* kMapApiFactory = "headroom_map_api";

}  // namespace headroom::maps
