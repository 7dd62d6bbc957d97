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
#include <string>

namespace headroom::maps {

inline constexpr int kMapApiVersion = 1;

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

// A GeoJSON file (RFC 7946) has longitude and latitude, in WGS 84, to 1e-9
// degrees; a GeoPackage the coordinates of the first box's picture.
enum class MapLayerFormat { kGeoJson, kGeoPackage };

// Boxes as polygons of four corners, with the attributes class, name,
// confidence, image, x1, y1, x2, y2.
class MapLayerWriter {
 public:
  virtual ~MapLayerWriter() = default;
  // Both return why it could not be done; "": it is.
  virtual std::string write(const MapPlace& place, const MapBox& box) = 0;
  virtual std::string finish() = 0;  // the file is whole only after it
};

class MapApi {
 public:
  virtual ~MapApi() = default;
  // Reads a GeoTIFF's header. None: see `reason`.
  virtual std::optional<MapPlace> place_of(const std::string& file,
                                           std::string& reason) = 0;
  // A file that is there is replaced. Null: see `reason`.
  virtual std::unique_ptr<MapLayerWriter> create(const std::string& file,
                                                 MapLayerFormat format,
                                                 std::string& reason) = 0;
};

// The one function that the plugin exports; null where it is of another
// version.
using MapApiFactory = MapApi* (*)(int version);
inline constexpr const char* kMapApiFactory = "headroom_map_api";

}  // namespace headroom::maps
