// Turns polygons on a map into boxes in pixels. A box spans the smallest and
// largest pixel coordinates of all vertices in the image. Holes and the
// direction of a ring do not matter. If one file serves many images, each image
// gets the part of a polygon that is inside its edges.
//
// The class is the property `class`, a name or a number. If there is a property
// `name` in addition to a number, as `detect` writes, `name` is used.

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/labels/box_rules.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/labels/geojson.h"
#include "worker/data/labels/geojson_extents.h"
#include "worker/data/labels/json_text.h"
#include "worker/data/labels/label_reader.h"
#include "worker/data/labels/parallel_for.h"
#include "worker/maps/map_api.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostOfClassName = 1000;  // bytes

// The map position of an image whose pixels are stored upright. Returns nullopt
// and sets `reason` if the image has no such position.
std::optional<maps::MapPlace> place_of_upright(maps::MapApi& maps,
                                               const std::string& image,
                                               codecs::ImageSize size,
                                               std::string& reason) {
  auto place = maps.place_of(image, reason);
  if (!place) {
    if (codecs::names_page(image)) {
      reason = "it is a page, and only whole files are read as maps";
    }
    return std::nullopt;
  }
  const codecs::StreamedImage stored = codecs::inspect_streamed(
      image, {.bands = codecs::kAnyBands, .as_stored = true});
  if (stored.ok() && stored.is_upright && place->height == size.height &&
      place->width == size.width) {
    return place;
  }
  if (!stored.ok()) {
    reason = stored.reason;
  } else if (!stored.is_upright) {
    reason = "its pixels are stored turned or mirrored";
  } else {
    reason = cat("its map has ", place->width, " x ", place->height,
                 " pixels, its picture ", size.width, " x ", size.height);
  }
  return std::nullopt;
}

// Coordinates with nine decimals of a degree miss the image's edge by rounding,
// and libraries differ in the last digits. So values near an edge are set to
// the edge, and others are rounded.
double rounded(double pixel, double edge) {
  constexpr double kBesideEdge = 0.01, kSteps = 1024, kFarthest = 1e12;
  for (const double side : {0.0, edge}) {
    if (std::abs(pixel - side) < kBesideEdge) return side;
  }
  return std::round(std::clamp(pixel, -kFarthest, kFarthest) * kSteps) / kSteps;
}

// The outer rings of a feature in pixels. Returns an empty list if a vertex
// cannot be converted.
std::vector<PixelRing> rings_in_pixels(const GeoFeature& feature,
                                       maps::MapPoints& points, double width,
                                       double height) {
  std::vector<double> x = feature.x, y = feature.y;
  std::vector<PixelRing> rings;
  size_t begin = 0;
  for (const GeoFeature::Ring& ring : feature.rings) {
    const size_t count = ring.end - begin;
    points.to_pixels(std::span(x).subspan(begin, count),
                     std::span(y).subspan(begin, count));
    PixelRing placed(count);
    for (size_t i = 0; i < count; ++i) {
      if (!std::isfinite(x[begin + i]) || !std::isfinite(y[begin + i])) {
        return {};
      }
      placed[i] = {rounded(x[begin + i], width), rounded(y[begin + i], height)};
    }
    if (!ring.is_hole) rings.push_back(std::move(placed));
    begin = ring.end;
  }
  return rings;
}

// Converts features to boxes of one image.
class FeatureReader {
 public:
  FeatureReader(const std::string& file, const GeoJson& content,
                const ClassRules& classes, maps::MapPoints& points,
                codecs::ImageSize size, LabelFile& labels)
      : file_(file),
        content_(content),
        classes_(classes),
        points_(points),
        size_(size),
        labels_(labels),
        rules_(labels) {}

  // If `cut` is set, a polygon beyond the image's edge is clipped without a
  // fault, and a polygon that is hardly visible is skipped, because another
  // image shows it.
  void add(size_t index, bool cut) {
    const GeoFeature& feature = content_.features[index];
    rules_.at(cat(file_, ":", feature.line), cat("feature ", feature.number));
    ++labels_.objects;
    if (!feature.fault.empty()) {
      return rules_.drop(DataFaultKind::kBadLine, feature.fault);
    }
    std::vector<PixelRing> rings =
        rings_in_pixels(feature, points_, size_.width, size_.height);
    if (rings.empty()) {
      return rules_.drop(DataFaultKind::kOutside, without_place(feature));
    }
    if (cut) {
      std::vector<PixelRing> parts = parts_in(rings, size_.width, size_.height);
      if (!shows_enough(parts, rings)) {
        --labels_.objects;
        return;
      }
      rings = std::move(parts);
    }
    const auto class_index = class_of(feature);
    if (!class_index) return;
    const size_t before = labels_.boxes.size();
    rules_.add_pixels(*class_index, extent_of(rings), size_, outline(rings));
    if (labels_.boxes.size() > before) ++labels_.num_polygons;
  }

 private:
  std::string without_place(const GeoFeature& feature) const {
    constexpr double kPole = 90;
    const auto beyond = std::ranges::find_if(
        feature.y, [](double y) { return std::abs(y) > kPole; });
    if (content_.reference_system != kLongitudeLatitude ||
        beyond == feature.y.end()) {
      return "a vertex has no place in the image's coordinate reference system";
    }
    const auto at = static_cast<size_t>(beyond - feature.y.begin());
    return short_number(feature.x[at]) + ", " + short_number(*beyond) +
           " is no longitude and latitude, and the file has no crs";
  }

  std::optional<int32_t> class_of(const GeoFeature& feature) {
    if (classes_.single_cls) return 0;
    if (const auto* name = std::get_if<std::string>(&feature.class_value)) {
      return classes_.find(short_line(*name, kMostOfClassName), feature.line,
                           labels_);
    }
    const auto* number = std::get_if<double>(&feature.class_value);
    if (!feature.name.empty()) {
      return classes_.find(short_line(feature.name, kMostOfClassName),
                           feature.line, labels_);
    }
    if (number == nullptr) {
      rules_.drop(DataFaultKind::kBadClass, "it has no property 'class'");
      return std::nullopt;
    }
    return rules_.class_of(*number, feature.line,
                           static_cast<int64_t>(classes_.names.size()));
  }

  Outline outline(const std::vector<PixelRing>& rings) const {
    std::vector<std::vector<double>> parts;
    for (const PixelRing& ring : rings) {
      parts.emplace_back();
      for (const auto& point : ring) {
        parts.back().insert(parts.back().end(), point.begin(), point.end());
      }
    }
    return joined_outline(parts, size_);
  }

  const std::string& file_;
  const GeoJson& content_;
  const ClassRules& classes_;
  maps::MapPoints& points_;
  const codecs::ImageSize size_;
  LabelFile& labels_;
  BoxRules rules_;
};

// One fault for all faulty features beyond kMostFaultyFeatures.
DataFault fault_of_rest(const std::string& file, const GeoJson& content) {
  return {DataFaultKind::kBadLine, file,
          counted(content.other_faults, "feature") +
              " more without a polygon's coordinates",
          "dropped"};
}

// Returns nullptr and sets `reason` if the image has no usable coordinates.
std::unique_ptr<maps::MapPoints> points_in_image(maps::MapApi& maps,
                                                 const std::string& image,
                                                 codecs::ImageSize size,
                                                 const GeoJson& content,
                                                 std::string& reason) {
  const auto place = place_of_upright(maps, image, size, reason);
  if (!place) {
    reason =
        "polygons on a map, but " + image + " has no coordinates: " + reason;
    return nullptr;
  }
  auto points = maps.points_in(content.reference_system, *place, reason);
  if (points == nullptr) reason = image + ": " + reason;
  return points;
}

class GeoJsonFiles : public OwnFileLabels {
 public:
  GeoJsonFiles(std::vector<std::string> images, ClassRules classes,
               maps::MapApi& maps)
      : OwnFileLabels(std::move(images)),
        classes_(std::move(classes)),
        maps_(maps) {}

  bool is_in_pixels() const override { return true; }

  std::vector<std::string> label_files(size_t index) const override {
    return geojson_paths(images_[index]);
  }

  ImageLabels read_text(size_t index, codecs::ImageSize size,
                        const std::string& file,
                        std::string_view text) const override {
    const GeoJson content = parse_geojson(text);
    if (!content.ok()) {
      ImageLabels refused = unreadable_labels(file, content.reason);
      refused.fault->where += cat(":", content.reason_line);
      return refused;
    }
    std::string reason;
    const auto points =
        points_in_image(maps_, images_[index], size, content, reason);
    if (points == nullptr) return unreadable_labels(file, std::move(reason));
    ImageLabels result;
    result.file = file;
    FeatureReader reader(file, content, classes_, *points, size, result.labels);
    for (size_t i = 0; i < content.features.size(); ++i) {
      reader.add(i, /*cut=*/false);
    }
    if (content.other_faults > 0) {
      result.labels.objects += content.other_faults;
      result.labels.dropped += content.other_faults;
      result.labels.faults.push_back(fault_of_rest(file, content));
    }
    return result;
  }

 private:
  const ClassRules classes_;
  maps::MapApi& maps_;
};

// One GeoJSON file for many images.
class GeoJsonTable : public TableLabels {
 public:
  GeoJsonTable(fs::path file, const fs::path& folder, ClassRules classes,
               DataReport& report, maps::MapApi& maps)
      : TableLabels(file, std::move(classes)), maps_(maps) {
    content_ = parse_geojson(read_json_text(file, "GeoJSON"));
    if (!content_.ok()) {
      throw Error("data", place(content_.reason_line) + ": " + content_.reason,
                  "export the layer again as GeoJSON", ExitCode::kData);
    }
    DataReport ignored;  // files that are not images need no report
    const std::vector<std::string> all = list_images({folder}, ignored);
    std::vector<Candidate> candidates = features_by_image(all);
    std::vector<bool> is_used(content_.features.size());
    std::vector<bool> is_touched(content_.features.size());
    std::string first_without_place;
    int64_t unused = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      Candidate& image = candidates[i];
      for (const Use& use : image.features) is_used[use.feature] = true;
      for (const size_t feature : image.touched) is_touched[feature] = true;
      if (!image.features.empty()) {
        images_.push_back(all[i]);
        features_.push_back(std::move(image.features));
        continue;
      }
      ++unused;
      if (first_without_place.empty() && !image.reason.empty()) {
        first_without_place = "; " + all[i] + ": " + image.reason;
      }
    }
    if (unused > 0) {
      report.notes.push_back(counted(unused, "image") + " in " +
                             folder.string() + " without a polygon of " +
                             file_ + ": not used" + first_without_place);
    }
    report_unused(is_used, is_touched, folder, report);
  }

  ImageLabels read(size_t index, codecs::ImageSize size) const override {
    std::string reason;
    const auto points =
        points_in_image(maps_, images_[index], size, content_, reason);
    if (points == nullptr) return unreadable_labels(file_, std::move(reason));
    ImageLabels result;
    result.file = file_;
    FeatureReader reader(file_, content_, classes_, *points, size,
                         result.labels);
    for (const Use& use : features_[index]) {
      reader.add(use.feature, !use.is_named);
    }
    return result;
  }

 private:
  // A feature that is used in an image because of its position or because it
  // names the image.
  struct Use {
    size_t feature = 0;
    bool is_named = false;
  };
  struct Candidate {
    std::vector<Use> features;
    std::vector<size_t> touched;  // features of which too little is visible
    std::string reason;           // why the image has no coordinates, else ""
  };

  // Returns for each feature the index of the image that it names, nullopt if
  // it does not name exactly one.
  std::vector<std::optional<size_t>> named_images(
      const std::vector<std::string>& all) const {
    std::map<std::string, std::vector<size_t>> by_name;
    for (size_t i = 0; i < all.size(); ++i) {
      by_name[all[i].substr(all[i].rfind('/') + 1)].push_back(i);
    }
    const auto find = [&](const std::string& name) -> std::optional<size_t> {
      const auto found = by_name.find(name.substr(name.rfind('/') + 1));
      if (found == by_name.end()) return std::nullopt;
      std::vector<size_t> same = found->second;
      if (same.size() > 1) {
        const std::string ending =
            "/" + fs::path(name).lexically_normal().relative_path().string();
        std::erase_if(same,
                      [&](size_t one) { return !all[one].ends_with(ending); });
      }
      if (same.size() != 1) return std::nullopt;
      return same.front();
    };
    std::map<std::string_view, std::optional<size_t>> known;
    std::vector<std::optional<size_t>> named;
    for (const GeoFeature& feature : content_.features) {
      const auto [at, is_new] = known.try_emplace(feature.image);
      if (is_new) at->second = find(feature.image);
      named.push_back(at->second);
    }
    return named;
  }

  std::vector<Candidate> features_by_image(
      const std::vector<std::string>& all) const {
    const std::vector<std::optional<size_t>> named = named_images(all);
    std::vector<Candidate> candidates(all.size());
    std::vector<ExtentTree::Entry> unnamed;
    for (size_t i = 0; i < named.size(); ++i) {
      const GeoFeature& feature = content_.features[i];
      if (!feature.fault.empty()) continue;
      if (named[i]) {
        candidates[*named[i]].features.push_back({i, true});
        continue;
      }
      const auto [west, east] = std::ranges::minmax(feature.x);
      const auto [south, north] = std::ranges::minmax(feature.y);
      unnamed.push_back({{west, south, east, north}, i});
    }
    const ExtentTree tree(std::move(unnamed));
    // GDAL caches one transformation between two systems. A thread that needs
    // it while another thread uses it has to create a second one, which takes
    // as long as converting kWorthASecond polygons. So the lock is released
    // before the conversion only for images with at least that many polygons.
    constexpr size_t kWorthASecond = 1000;
    std::mutex transforming;
    constexpr int64_t kThreads = 8;
    parallel_for(static_cast<int64_t>(all.size()), kThreads, [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      Candidate& image = candidates[at];
      const auto place = maps_.place_of(all[at], image.reason);
      if (!place) return;
      std::unique_lock lock(transforming);
      const auto points =
          maps_.points_in(content_.reference_system, *place, image.reason);
      if (points == nullptr) return;
      std::optional<MapBounds> bounds;
      if (const auto sides = points->bounds()) {
        bounds = {*sides, points->turn()};
      }
      const std::vector<size_t> near = tree.meeting(bounds);
      if (near.size() >= kWorthASecond) lock.unlock();
      for (const size_t feature : near) {
        look_for(feature, *points, *place, image);
      }
      std::ranges::sort(image.features, {}, &Use::feature);
    });
    return candidates;
  }

  void look_for(size_t feature, maps::MapPoints& points,
                const maps::MapPlace& place, Candidate& image) const {
    const auto width = static_cast<double>(place.width);
    const auto height = static_cast<double>(place.height);
    const std::vector<PixelRing> rings =
        rings_in_pixels(content_.features[feature], points, width, height);
    const std::vector<PixelRing> parts = parts_in(rings, width, height);
    if (shows_enough(parts, rings)) {
      image.features.push_back({feature, false});
    } else if (!parts.empty()) {
      image.touched.push_back(feature);
    }
  }

  // Polygons outside all images may belong to another split, so only a note
  // states their number.
  void report_unused(const std::vector<bool>& is_used,
                     const std::vector<bool>& is_touched,
                     const fs::path& folder, DataReport& report) const {
    int64_t outside = 0, first_line = 0;
    for (size_t i = 0; i < is_used.size(); ++i) {
      if (is_used[i]) continue;
      const GeoFeature& feature = content_.features[i];
      const std::string name = cat("feature ", feature.number, ": ");
      const std::string where = place(feature.line);
      ++report.objects;
      ++report.dropped;
      if (!feature.fault.empty()) {
        report.add({DataFaultKind::kBadLine, where, name + feature.fault,
                    "box dropped"});
      } else if (is_touched[i]) {
        report.add({DataFaultKind::kOutside, where,
                    name + "no image of " + folder.string() + " shows " +
                        short_number(kLeastVisible) + " of its area",
                    "box dropped"});
      } else if (++outside == 1) {
        first_line = feature.line;
      }
    }
    if (content_.other_faults > 0) {
      report.objects += content_.other_faults;
      report.dropped += content_.other_faults;
      report.add(fault_of_rest(file_, content_));
    }
    if (outside > 0) {
      report.notes.push_back(cat(
          counted(outside, "polygon"), " of ", file_, " in no image of ",
          folder.string(), ": not used; the first is in line ", first_line));
    }
  }

  maps::MapApi& maps_;
  GeoJson content_;
  std::vector<std::vector<Use>> features_;  // features of each image
};

}  // namespace

std::vector<std::string> geojson_paths(std::string_view image) {
  std::vector<std::string> paths = label_paths(image);
  for (std::string& path : paths) path = with_suffix(path, ".geojson");
  return paths;
}

std::unique_ptr<LabelReader> open_geojson_files(std::vector<std::string> images,
                                                const ClassRules& classes,
                                                maps::MapApi& maps) {
  return std::make_unique<GeoJsonFiles>(std::move(images), classes, maps);
}

std::unique_ptr<LabelReader> open_geojson_labels(const fs::path& file,
                                                 const fs::path& images,
                                                 const ClassRules& classes,
                                                 DataReport& report,
                                                 maps::MapApi& maps) {
  const fs::path whole = fs::absolute(file).lexically_normal();
  return std::make_unique<GeoJsonTable>(whole, folder_of_images(whole, images),
                                        classes, report, maps);
}

}  // namespace headroom::labels
