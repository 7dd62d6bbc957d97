// Parses the polygons of a GeoJSON text. The images that they belong to are
// found later.
//
// Coordinates are longitude and latitude (RFC 7946), or belong to the system in
// the member `crs`, which files of the 2008 format have. The system must be
// given as a name, such as urn:ogc:def:crs:EPSG::32633 or EPSG:32633; the
// easting or longitude is the first number. Members may be in any order, and
// unknown ones are skipped.
//
// Memory is at most 48 bytes per vertex and about 700 per feature for any
// input. Of the features that are not polygons, only the first
// kMostFaultyFeatures are kept.
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

// A text with more than this number of features that are no objects is refused.
inline constexpr int64_t kMostForeignFeatures = 1000;
// Features that are not polygons are kept up to this number; the rest are only
// counted.
inline constexpr int64_t kMostFaultyFeatures = 2000;

// One member of `features`; members keep their order.
struct GeoFeature {
  struct Ring {
    size_t end = 0;        // index after its last vertex in x and y
    bool is_hole = false;  // true for all rings of a polygon except its first
  };
  int64_t number = 0;  // place in `features`, counted from 1
  int64_t line = 0;
  std::string fault;  // why the feature is not a polygon; "" if it is
  // The property `class`: missing, a name or a number.
  std::variant<std::monostate, std::string, double> class_value;
  // The properties `name` and `image`; "" if missing or not text.
  std::string name, image;
  std::vector<double> x, y;
  std::vector<Ring> rings;  // each has 3 or more vertices
};

struct GeoJson {
  std::string reference_system = kLongitudeLatitude;
  std::vector<GeoFeature> features;
  int64_t other_faults = 0;  // faulty features beyond those kept in `features`
  // Why the whole text is refused, and in which line; "" if it is not refused.
  std::string reason;
  int64_t reason_line = 0;
  bool ok() const { return reason.empty(); }
};

GeoJson parse_geojson(std::string_view text);

// Whether the file's content is a FeatureCollection. Stops reading at the
// root's type or at a list that COCO files have. Returns false if the file
// cannot be read.
bool is_geojson(const std::filesystem::path& file);

}  // namespace headroom::labels
