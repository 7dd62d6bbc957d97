#include "worker/data/labels/geojson.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <system_error>
#include <utility>

#include "parallel/base/file_kind.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "worker/data/labels/json_text.h"

namespace headroom::labels {
namespace {

constexpr const char* kCollection = "FeatureCollection";
// Messages shorten a text from the file to this number of bytes.
constexpr size_t kMostShownOfGeoJson = 80;

// Accepts only names of reference systems that cannot refer to a file or a
// network address.
bool is_name_of_system(std::string_view name) {
  constexpr size_t kLongestName = 128;
  constexpr std::array<std::string_view, 3> kBeginnings = {
      "urn:ogc:def:crs:", "http://www.opengis.net/def/crs/",
      "https://www.opengis.net/def/crs/"};
  const auto is_letter = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  if (name.size() > kLongestName) return false;
  for (const std::string_view beginning : kBeginnings) {
    if (!name.starts_with(beginning)) continue;
    return std::ranges::all_of(name.substr(beginning.size()), [&](char c) {
      return is_letter(c) || c == ':' || c == '.' || c == '/' || c == '-';
    });
  }
  const size_t colon = name.find(':');
  return colon != std::string_view::npos && colon > 0 &&
         colon + 1 < name.size() &&
         std::ranges::all_of(name.substr(0, colon), is_letter) &&
         std::ranges::all_of(name.substr(colon + 1), is_letter);
}

// The role of an object or list in the text.
enum class GeoPlace : uint8_t {
  kElsewhere,
  kRoot,
  kCrs,
  kCrsProperties,
  kFeatures,
  kFeature,
  kProperties,
  kGeometry,
  kCoordinates,  // the list and all lists inside it
};

class GeoJsonHandler {
 public:
  explicit GeoJsonHandler(int64_t& line) : line_(line) {}

  // REQUIRES: the whole text has been parsed.
  GeoJson finish() {
    if (!result_.ok()) return std::move(result_);
    if (root_type_ != kCollection || !has_features_) {
      refuse(root_type_.empty() || root_type_ == kCollection
                 ? "no FeatureCollection with a list of features"
                 : "its type is " +
                       short_line(root_type_, kMostShownOfGeoJson) +
                       ", not FeatureCollection",
             1);
    } else if (has_crs_ && !is_name_of_system(crs_name_)) {
      refuse(crs_name_.empty()
                 ? "its crs has no name: write EPSG:N there, or, where "
                   "coordinates are longitude and latitude, no crs"
                 : "its crs '" + short_line(crs_name_, kMostShownOfGeoJson) +
                       "' is no name such as EPSG:32633",
             crs_line_);
    } else if (has_crs_) {
      result_.reference_system = crs_name_;
    }
    return std::move(result_);
  }

  bool null() { return other_value(); }
  bool boolean(bool) { return other_value(); }
  bool number_integer(int64_t value) {
    return number(static_cast<double>(value));
  }
  bool number_unsigned(uint64_t value) {
    return number(static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) { return number(value); }
  bool binary(nlohmann::json::binary_t&) { return true; }

  bool string(std::string& value) {
    switch (place()) {
      case GeoPlace::kRoot:
        if (key_ == "type") root_type_ = std::move(value);
        break;
      case GeoPlace::kCrsProperties:
        if (key_ == "name") crs_name_ = std::move(value);
        break;
      case GeoPlace::kFeature:
        if (key_ == "type") is_feature_ = value == "Feature";
        break;
      case GeoPlace::kGeometry:
        if (key_ == "type") geometry_type_ = std::move(value);
        break;
      case GeoPlace::kProperties:
        if (key_ == "class") feature_.class_value = std::move(value);
        if (key_ == "name") feature_.name = std::move(value);
        if (key_ == "image") feature_.image = std::move(value);
        break;
      default:
        return other_value();
    }
    return true;
  }

  bool start_object(size_t) {
    if (place() == GeoPlace::kCoordinates) has_bad_coordinates_ = true;
    enter(place_of_object());
    switch (place()) {
      case GeoPlace::kCrs:
        crs_name_.clear();
        break;
      case GeoPlace::kFeature:
        begin_feature();
        break;
      case GeoPlace::kGeometry:
        geometry_type_.clear();
        begin_coordinates();
        break;
      default:
        break;
    }
    return true;
  }

  bool end_object() {
    if (place() == GeoPlace::kFeature) end_feature();
    places_.pop_back();
    return true;
  }

  bool key(std::string& value) {
    key_ = std::move(value);
    if (place() == GeoPlace::kRoot && key_ == "crs") {
      has_crs_ = true;
      crs_line_ = line_;
    }
    return true;
  }

  bool start_array(size_t) {
    const GeoPlace before = place();
    if (before == GeoPlace::kFeatures && !add_foreign_feature()) return false;
    if (before == GeoPlace::kCoordinates) {
      if (numbers_ > 0) has_bad_coordinates_ = true;
      ++level_;
    } else if (before == GeoPlace::kGeometry && key_ == "coordinates") {
      begin_coordinates();
      level_ = 1;
    }
    enter(place_of_list());
    if (place() == GeoPlace::kFeatures) has_features_ = true;
    numbers_ = 0;
    return true;
  }

  bool end_array() {
    if (place() == GeoPlace::kCoordinates) end_coordinates();
    places_.pop_back();
    return true;
  }

  bool parse_error(size_t, const std::string&,
                   const nlohmann::json::exception& error) {
    refuse(json_error_text(error), line_);
    return false;
  }

 private:
  GeoPlace place() const {
    return places_.empty() ? GeoPlace::kElsewhere : places_.back();
  }
  void enter(GeoPlace place) { places_.push_back(place); }

  void refuse(std::string reason, int64_t line) {
    result_ = {};
    result_.reason = std::move(reason);
    result_.reason_line = line;
  }

  GeoPlace place_of_object() const {
    if (places_.empty()) return GeoPlace::kRoot;
    switch (place()) {
      case GeoPlace::kRoot:
        if (key_ == "crs") return GeoPlace::kCrs;
        break;
      case GeoPlace::kCrs:
        if (key_ == "properties") return GeoPlace::kCrsProperties;
        break;
      case GeoPlace::kFeatures:
        return GeoPlace::kFeature;
      case GeoPlace::kFeature:
        if (key_ == "geometry") return GeoPlace::kGeometry;
        if (key_ == "properties") return GeoPlace::kProperties;
        break;
      default:
        break;
    }
    return GeoPlace::kElsewhere;
  }

  GeoPlace place_of_list() const {
    switch (place()) {
      case GeoPlace::kRoot:
        if (key_ == "features") return GeoPlace::kFeatures;
        break;
      case GeoPlace::kGeometry:
        if (key_ == "coordinates") return GeoPlace::kCoordinates;
        break;
      case GeoPlace::kCoordinates:
        return GeoPlace::kCoordinates;
      default:
        break;
    }
    return GeoPlace::kElsewhere;
  }

  // Handles a value of a type that is not expected at this place.
  bool other_value() {
    if (place() == GeoPlace::kFeatures) return add_foreign_feature();
    if (place() == GeoPlace::kCoordinates) has_bad_coordinates_ = true;
    return true;
  }

  bool number(double value) {
    if (place() == GeoPlace::kCoordinates) {
      if (numbers_ < position_.size()) position_[numbers_] = value;
      ++numbers_;
      return true;
    }
    if (place() == GeoPlace::kProperties && key_ == "class") {
      feature_.class_value = value;
      return true;
    }
    return other_value();
  }

  void begin_feature() {
    feature_ = {};
    feature_.line = line_;
    is_feature_ = false;
    geometry_type_.clear();
    begin_coordinates();
  }

  void begin_coordinates() {
    feature_.x.clear();
    feature_.y.clear();
    feature_.rings.clear();
    has_bad_coordinates_ = false;
    level_ = level_of_positions_ = numbers_ = rings_of_polygon_ = 0;
  }

  // A list of numbers is a position, a list of positions is a ring, and a list
  // of rings is a polygon.
  void end_coordinates() {
    if (numbers_ > 0) {
      if (level_of_positions_ == 0) level_of_positions_ = level_;
      if (numbers_ < 2 || level_ != level_of_positions_) {
        has_bad_coordinates_ = true;
      }
      feature_.x.push_back(position_[0]);
      feature_.y.push_back(position_[1]);
    } else if (level_ == level_of_positions_) {
      has_bad_coordinates_ = true;
    } else if (level_ + 1 == level_of_positions_) {
      end_ring();
    } else if (level_ + 2 == level_of_positions_) {
      rings_of_polygon_ = 0;
    }
    numbers_ = 0;
    --level_;
  }

  void end_ring() {
    const size_t begin = feature_.rings.empty() ? 0 : feature_.rings.back().end;
    size_t end = feature_.x.size();
    // A closed ring repeats its first vertex at its end.
    if (end > begin + 1 && feature_.x[begin] == feature_.x.back() &&
        feature_.y[begin] == feature_.y.back()) {
      feature_.x.pop_back();
      feature_.y.pop_back();
      --end;
    }
    constexpr size_t kLeastVertices = 3;
    if (end - begin < kLeastVertices) has_bad_coordinates_ = true;
    feature_.rings.push_back({end, rings_of_polygon_ > 0});
    ++rings_of_polygon_;
  }

  std::string fault_of_feature() const {
    if (!is_feature_) return "it is no Feature";
    if (geometry_type_.empty()) return "it has no geometry";
    const bool is_polygon = geometry_type_ == "Polygon";
    if (!is_polygon && geometry_type_ != "MultiPolygon") {
      return "its geometry is a " +
             short_line(geometry_type_, kMostShownOfGeoJson) +
             ", not a Polygon or MultiPolygon";
    }
    if (has_bad_coordinates_ || feature_.rings.empty() ||
        level_of_positions_ != (is_polygon ? 3U : 4U)) {
      return "its coordinates are not those of a " + geometry_type_;
    }
    return "";
  }

  void end_feature() {
    feature_.fault = fault_of_feature();
    if (!feature_.fault.empty()) {
      feature_.x = feature_.y = {};
      feature_.rings = {};
    }
    feature_.number = ++num_features_;
    if (!feature_.fault.empty() && ++num_faulty_ > kMostFaultyFeatures) {
      ++result_.other_faults;
    } else {
      result_.features.push_back(std::move(feature_));
    }
  }

  // Adds a member of `features` that is not an object. If there are too many,
  // refuses the text and returns false.
  bool add_foreign_feature() {
    begin_feature();
    end_feature();
    if (++num_foreign_ <= kMostForeignFeatures) return true;
    refuse(cat("more than ", kMostForeignFeatures,
               " of its features are no objects"),
           line_);
    return false;
  }

  int64_t& line_;
  GeoJson result_;
  std::vector<GeoPlace> places_;  // open objects and lists, from the root
  std::string key_;               // the last key read
  std::string root_type_, crs_name_;
  bool has_features_ = false, has_crs_ = false;
  int64_t crs_line_ = 0;

  int64_t num_features_ = 0, num_faulty_ = 0, num_foreign_ = 0;

  // The feature that is being read.
  GeoFeature feature_;
  bool is_feature_ = false;
  std::string geometry_type_;
  bool has_bad_coordinates_ = false;
  size_t level_ = 0;               // number of open lists of coordinates
  size_t level_of_positions_ = 0;  // level of positions; 0 before the first one
  size_t numbers_ = 0;             // count of numbers in the last list opened
  size_t rings_of_polygon_ = 0;
  std::array<double, 2> position_{};
};

// Reads the events of a text only until they show which kind of JSON it is.
class KindHandler {
 public:
  bool is_collection = false;

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(int64_t) { return true; }
  bool number_unsigned(uint64_t) { return true; }
  bool number_float(double, const std::string&) { return true; }
  bool binary(nlohmann::json::binary_t&) { return true; }
  bool string(std::string& value) {
    if (depth_ != 1 || key_ != "type") return true;
    is_collection = value == kCollection;
    return false;
  }
  bool start_object(size_t) { return ++depth_ > 0; }
  bool end_object() { return --depth_ > 0; }
  bool key(std::string& value) {
    if (depth_ == 1) key_ = std::move(value);
    return true;
  }
  bool start_array(size_t) {
    // If the root is a list, the file is no FeatureCollection.
    const bool is_coco =
        depth_ == 1 && (key_ == "images" || key_ == "annotations");
    return depth_++ > 0 && !is_coco;
  }
  bool end_array() { return --depth_ > 0; }
  bool parse_error(size_t, const std::string&,
                   const nlohmann::json::exception&) {
    return false;
  }

 private:
  int64_t depth_ = 0;
  std::string key_;  // the last key read in the root
};

}  // namespace

bool is_geojson(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error) ||
      std::filesystem::file_size(file, error) > kMostJsonBytes) {
    return false;
  }
  std::ifstream stream(file, std::ios::binary);
  KindHandler handler;
  nlohmann::json::sax_parse(stream, &handler);
  return handler.is_collection;
}

GeoJson parse_geojson(std::string_view text) {
  const std::string kind =
      to_string(foreign_kind(text.substr(0, kFileHeadBytes)));
  if (!kind.empty()) {
    GeoJson refused;
    refused.reason = kind + ", not GeoJSON in UTF-8";
    refused.reason_line = 1;
    return refused;
  }
  int64_t line = 1;
  GeoJsonHandler handler(line);
  parse_json_events(text, line, handler);
  return handler.finish();
}

}  // namespace headroom::labels
