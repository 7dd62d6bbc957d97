// GeoJSON's polygons, before anything is known of the pictures that they lie
// in.
//
// Coordinates are longitude and latitude (RFC 7946), or those of the member
// `crs` that files of 2008 have: a name as urn:ogc:def:crs:EPSG::32633 or
// EPSG:32633, east or longitude first. Nothing needs to be in order, and
// unknown members are skipped.
//
// A text costs at most 48 bytes per vertex and some 700 per feature, whatever
// it holds: of what is no polygon, only the first features are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace headroom::labels {

inline constexpr const char* kLongitudeLatitude = "OGC:CRS84";

// Features that are no objects: more are no GeoJSON.
inline constexpr int64_t kMostForeignFeatures = 1000;
// Features that are no polygons: more are counted.
inline constexpr int64_t kMostFaultyFeatures = 2000;

// A member of `features`, in order.
struct GeoFeature {
  struct Ring {
    size_t end = 0;        // vertices before it, and in it
    bool is_hole = false;  // not a polygon's first
  };
  int64_t number = 0;  // 1 is the first member
  int64_t line = 0;
  std::string fault;  // why it is no polygon; "": it is one
  // The property `class`: none, a name or a number.
  std::variant<std::monostate, std::string, double> class_value;
  std::string name, image;  // the properties; "" where they are no text
  std::vector<double> x, y;
  std::vector<Ring> rings;  // Each has 3 vertices or more.
};

struct GeoJson {
  std::string reference_system = kLongitudeLatitude;
  std::vector<GeoFeature> features;
  int64_t other_faults = 0;  // features that are not among them
  // Why the text as a whole is refused, and where; "": it is not.
  std::string reason;
  int64_t reason_line = 0;
  bool ok() const { return reason.empty(); }
};

GeoJson parse_geojson(std::string_view text);

// Is it a FeatureCollection, whatever its name? Reads no further than to the
// root's type, or to a list that COCO has. False where it cannot be read.
bool is_geojson(const std::filesystem::path& file);

}  // namespace headroom::labels
