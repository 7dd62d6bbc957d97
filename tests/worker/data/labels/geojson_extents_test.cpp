// The search by extents finds the same polygons as a search of every polygon
// for every map.
#include "worker/data/labels/geojson_extents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>

#include "tests/worker/data/data_files.h"
#include "worker/data/labels/label_reader.h"
#include "worker/data/sampling/random.h"
#include "worker/maps/map_api.h"

namespace headroom::labels {
namespace {

using ::testing::SizeIs;

constexpr double kTurn = 360;

sampling::RandomStream draws_of(uint64_t seed) {
  return {seed, 0, 0, sampling::RandomPurpose::kSyntheticImage};
}

// Some extents are points, some go round the Earth, and some have longitudes
// that are a full turn further.
BoxExtent random_extent(sampling::RandomStream& draws) {
  constexpr std::array<double, 7> kSizes = {0, 0.1, 1, 5, 60, 355, 1e300};
  const auto size = [&] {
    const auto of = draws.below(100) == 0 ? kSizes.size() : kSizes.size() - 3;
    return draws.uniform() *
           kSizes[static_cast<size_t>(draws.below(static_cast<int64_t>(of)))];
  };
  const double far = draws.below(200) == 0 ? draws.uniform(-1, 1) * 1e20 : 0;
  const double x = draws.uniform(-540, 540) + far, y = draws.uniform(-80, 80);
  return {x, y, x + size(), y + size()};
}

TEST(ExtentTree, FindsThePolygonsOfAFullSearch) {
  size_t total = 0;
  for (const size_t count : {0, 1, 16, 17, 1000, 5000}) {
    sampling::RandomStream draws = draws_of(count);
    std::vector<ExtentTree::Entry> entries;
    for (size_t i = 0; i < count; ++i) {
      entries.push_back({random_extent(draws), 3 * i});
    }
    const ExtentTree tree(entries);
    EXPECT_THAT(tree.meeting(std::nullopt), SizeIs(count));
    for (int map = 0; map < 400; ++map) {
      const double turn = map % 4 == 0 ? 0 : kTurn;
      const double south = draws.uniform(-90, 80);
      const double west = draws.uniform(-180, 180);
      const double wide =
          map % 8 == 1 ? draws.uniform(300, 360) : draws.uniform(0, 4);
      const double east =
          west + wide > 180 && turn > 0 ? west + wide - turn : west + wide;
      const MapBounds bounds{{west, south, east, south + draws.uniform() * 10},
                             turn};
      std::vector<size_t> expected;
      for (const ExtentTree::Entry& entry : entries) {
        if (may_meet(entry.extent, bounds)) expected.push_back(entry.number);
      }
      std::vector<size_t> found = tree.meeting(bounds);
      std::ranges::sort(found);
      ASSERT_EQ(found, expected) << count << " " << map;
      total += found.size();
    }
  }
  EXPECT_GT(total, 5000U);
}

// Maps in degrees at random places. If `hides_bounds` is set, a map is compared
// with every polygon.
class DegreeMaps : public maps::MapApi {
 public:
  static constexpr int kHeight = 20, kWidth = 30;
  bool hides_bounds = false;
  std::map<std::string, std::array<double, 6>> transforms;  // key: file name

  std::optional<maps::MapPlace> place_of(const std::string& file,
                                         std::string& reason) override {
    const auto found = transforms.find(file.substr(file.rfind('/') + 1));
    reason = found == transforms.end() ? "it is no GeoTIFF" : "";
    if (found == transforms.end()) return std::nullopt;
    return maps::MapPlace{found->second, "degrees", kHeight, kWidth};
  }
  std::unique_ptr<maps::MapPoints> points_in(const std::string&,
                                             const maps::MapPlace& place,
                                             std::string&) override {
    return std::make_unique<Points>(place.transform, hides_bounds);
  }
  std::unique_ptr<maps::MapLayerWriter> make_geojson(std::string&) override {
    return nullptr;
  }
  std::unique_ptr<maps::MapLayerWriter> make_geopackage(const std::string&,
                                                        std::string&) override {
    return nullptr;
  }

 private:
  class Points : public maps::MapPoints {
   public:
    Points(const std::array<double, 6>& transform, bool hides_bounds)
        : t_(transform), hides_bounds_(hides_bounds) {}
    std::optional<std::array<double, 4>> bounds() override {
      if (hides_bounds_) return std::nullopt;
      const double wide = kWidth * t_[1], south = t_[3] + kHeight * t_[5];
      if (wide >= kTurn) return {{-kTurn / 2, south, kTurn / 2, t_[3]}};
      return {{std::remainder(t_[0], kTurn), south,
               std::remainder(t_[0] + wide, kTurn), t_[3]}};
    }
    double turn() const override { return kTurn; }
    void to_pixels(std::span<double> x, std::span<double> y) override {
      const auto [low, high] = std::ranges::minmax(x);
      const double away = (low + high) / 2 - (t_[0] + kWidth * t_[1] / 2);
      const double turns = std::round(away / kTurn) * kTurn;
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = (x[i] - turns - t_[0]) / t_[1];
        y[i] = (y[i] - t_[3]) / t_[5];
      }
    }

   private:
    const std::array<double, 6> t_;
    const bool hides_bounds_;
  };
};

std::string random_feature(sampling::RandomStream& draws, int64_t maps) {
  std::string properties = "\"class\": " + std::to_string(draws.below(2));
  if (draws.below(20) == 0) {
    properties +=
        ", \"image\": \"" + std::to_string(draws.below(2 * maps)) + ".bmp\"";
  }
  const bool is_polygon = draws.below(20) > 0;
  const BoxExtent box = random_extent(draws);
  const auto corner = [](double x, double y) {
    return "[" + std::to_string(x) + ", " + std::to_string(y) + "]";
  };
  return R"({"type": "Feature", "properties": {)" + properties +
         R"(}, "geometry": {"type": ")" + (is_polygon ? "Polygon" : "Point") +
         R"(", "coordinates": [[)" + corner(box.x1, box.y1) + ", " +
         corner(box.x2, box.y1) + ", " + corner(box.x2, box.y2) + "]]}}";
}

// All results of reading a table, as lines of text.
std::vector<std::string> told(const std::filesystem::path& file,
                              const std::filesystem::path& images,
                              maps::MapApi& maps) {
  DataReport report;
  const auto table =
      open_geojson_labels(file, images, {{"car", "bus"}, false}, report, maps);
  std::vector<std::string> lines = report.notes;
  const auto add_faults = [&lines](const std::vector<DataFault>& faults) {
    for (const DataFault& fault : faults) lines.push_back(to_string(fault));
  };
  add_faults(report.faults);
  for (size_t i = 0; i < table->images().size(); ++i) {
    const ImageLabels labels =
        table->read(i, {DegreeMaps::kHeight, DegreeMaps::kWidth});
    lines.push_back(table->images()[i] + (labels.fault ? " refused" : ""));
    lines.push_back(label_text(labels.labels.boxes, labels.labels.outlines));
    add_faults(labels.labels.faults);
  }
  return lines;
}

TEST(GeoJsonTable, MapsHaveThePolygonsOfAFullSearch) {
  constexpr int kMaps = 60;
  constexpr int kFeatures = 3000;
  const TemporaryFolder folder;
  sampling::RandomStream draws = draws_of(1);
  DegreeMaps maps;
  for (int i = 0; i < kMaps; ++i) {
    const std::string name = std::to_string(i) + ".bmp";
    folder.write(
        "images/" + name,
        encode_bmp(test_picture(DegreeMaps::kHeight, DegreeMaps::kWidth, 1)));
    const double wide = i == 0 ? 361 : draws.uniform() * (i % 7 == 0 ? 90 : 8);
    const double west = draws.uniform(-180, i % 2 == 0 ? 180 : 355);
    if (i % 20 == 19) continue;
    maps.transforms[name] = {west, wide / DegreeMaps::kWidth,
                             0,    draws.uniform(-70, 90),
                             0,    -draws.uniform() * 8 / DegreeMaps::kHeight};
  }
  std::string features = random_feature(draws, kMaps);
  for (int i = 1; i < kFeatures; ++i) {
    features += ",\n" + random_feature(draws, kMaps);
  }
  const auto file = folder.write(
      "all.geojson",
      R"({"type": "FeatureCollection", "features": [)" + features + "]}");
  const auto found = told(file, folder.path() / "images", maps);
  maps.hides_bounds = true;
  EXPECT_EQ(found, told(file, folder.path() / "images", maps));
  EXPECT_GT(found.size(), 400U);
}

}  // namespace
}  // namespace headroom::labels
