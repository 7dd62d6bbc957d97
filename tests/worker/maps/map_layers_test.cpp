// Boxes of GeoTIFFs are written as GeoJSON and GeoPackage. Coordinates are
// compared with PROJ's own; attributes and refusals are checked too. GDAL makes
// the maps.
#include "worker/detect/map_layers.h"

#include <gdal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ogr_api.h>
#include <ogr_srs_api.h>
#include <proj.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "tests/support/error_text.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "tests/worker/maps/map_files.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kSide = 2000;
constexpr Transform kHalfMetres = {500000, 0.5, 0, 5400000, 0, -0.5};
const std::vector<std::string> kNames = {"car", "bus \"N\""};

// The file is sparse: its pixels are never read, and take no space on the disk.
void make_map(const fs::path& file, const std::string& system,
              const Transform& transform, int side = kSide) {
  GDALAllRegister();
  const char* const options[] = {"SPARSE_OK=TRUE", nullptr};
  const GDALDatasetH map =
      GDALCreate(GDALGetDriverByName("GTiff"), file.c_str(), side, side, 1,
                 GDT_Byte, const_cast<char**>(options));
  ASSERT_TRUE(place_map(map, transform, system));
  GDALClose(map);
}

class MapLayersTest : public ::testing::Test {
 protected:
  // Writes the detections in the maps; returns the reasons of maps without
  // coordinates.
  std::string write(const std::vector<ImageDetections>& all) {
    FolderOptions options;
    options.may_exist = true;
    DetectionFolder out(folder_.path() / "out", kNames, options);
    MapLayers layers(built_plugin(), out, {true, true}, kNames);
    std::string why;
    for (const ImageDetections& found : all) why += layers.add(found);
    layers.finish();
    return why;
  }
  nlohmann::json geojson() const {
    return parsed(folder_.path() / "out/predictions.geojson");
  }
  std::string system_of_package() const {
    const GDALDatasetH layers =
        GDALOpenEx((folder_.path() / "out/predictions.gpkg").c_str(),
                   GDAL_OF_VECTOR, nullptr, nullptr, nullptr);
    HEADROOM_CHECK(layers != nullptr, "a package");
    const std::string code = OSRGetAuthorityCode(
        OGR_L_GetSpatialRef(GDALDatasetGetLayer(layers, 0)), nullptr);
    GDALClose(layers);
    return code;
  }
  fs::path map(const std::string& name) const { return folder_.path() / name; }

  TemporaryFolder folder_;
};

// Boxes of all sizes over the whole picture.
std::vector<metrics::Detection> grid_of_boxes() {
  std::vector<metrics::Detection> boxes;
  for (int row = 0; row < 10; ++row) {
    for (int column = 0; column < 10; ++column) {
      metrics::Detection one;
      const auto x = static_cast<float>(column) * 199.25F;
      const auto y = static_cast<float>(row) * 198.5F;
      one.box = {x, y, x + 1 + static_cast<float>(row),
                 y + 2.5F * static_cast<float>(1 + column)};
      one.class_index = (row + column) % 2;
      one.confidence = 0.5F;
      boxes.push_back(one);
    }
  }
  return boxes;
}

// The pixel of a longitude and latitude, by PROJ and the inverse transform.
std::array<double, 2> pixel_of(PJ* to_system, const Transform& t,
                               double longitude, double latitude) {
  const PJ_COORD at =
      proj_trans(to_system, PJ_FWD, proj_coord(longitude, latitude, 0, 0));
  const double x = at.xy.x - t[0], y = at.xy.y - t[3];
  const double determinant = t[1] * t[5] - t[2] * t[4];
  return {(x * t[5] - y * t[2]) / determinant,
          (y * t[1] - x * t[4]) / determinant};
}

struct System {
  const char* name;
  Transform transform;
};

class MapLayersOfSystem : public MapLayersTest,
                          public ::testing::WithParamInterface<System> {};

TEST_P(MapLayersOfSystem, CornersAreWherePROJHasThem) {
  const System& system = GetParam();
  make_map(map("map.tif"), system.name, system.transform);
  const std::vector<metrics::Detection> boxes = grid_of_boxes();
  ASSERT_EQ(write({{map("map.tif"), kSide, kSide, boxes}}), "");
  PJ_CONTEXT* const context = proj_context_create();
  PJ* const given =
      proj_create_crs_to_crs(context, "OGC:CRS84", system.name, nullptr);
  PJ* const to_system = proj_normalize_for_visualization(context, given);
  const nlohmann::json features = geojson()["features"];
  ASSERT_EQ(features.size(), boxes.size());
  double worst = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const nlohmann::json& ring = features[i]["geometry"]["coordinates"][0];
    ASSERT_EQ(ring.size(), 5);
    const metrics::Corners& box = boxes[i].box;
    const std::array<std::array<double, 2>, 4> corners = {{{box.x1, box.y1},
                                                           {box.x2, box.y1},
                                                           {box.x2, box.y2},
                                                           {box.x1, box.y2}}};
    // The ring may begin at any corner and go in either direction.
    for (const auto& corner : corners) {
      double nearest = 1e9;
      for (const nlohmann::json& point : ring) {
        const auto pixel =
            pixel_of(to_system, system.transform, point[0], point[1]);
        nearest = std::min(
            nearest, std::hypot(pixel[0] - corner[0], pixel[1] - corner[1]));
      }
      worst = std::max(worst, nearest);
    }
  }
  std::printf("%s: at most %.5f px from PROJ's\n", system.name, worst);
  EXPECT_LE(worst, 0.01);
  proj_destroy(to_system);
  proj_destroy(given);
  proj_context_destroy(context);
}

INSTANTIATE_TEST_SUITE_P(
    Systems, MapLayersOfSystem,
    ::testing::Values(System{"EPSG:32633", {500000, 0.1, 0, 5400000, 0, -0.1}},
                      System{"EPSG:3857",
                             {1.3e6, 0.25, 0.05, 6.1e6, 0.05, -0.25}},
                      System{"EPSG:4326", {13.25, 1e-6, 0, 52.5, 0, -1e-6}},
                      System{"EPSG:3031", {-1.5e6, 0.5, 0, 9e5, 0, -0.5}}));

TEST_F(MapLayersTest, AGeoPackageHasTheFirstMapsSystemAndAllAttributes) {
  make_map(map("a.tif"), "EPSG:32633", kHalfMetres);
  make_map(map("b.tif"), "EPSG:3857", {1.67e6, 1, 0, 6.2e6, 0, -1});
  metrics::Detection one;
  one.box = {10, 20, 30, 60};
  one.class_index = 1;
  one.confidence = 0.25F;
  ASSERT_EQ(write({{map("a.tif"), kSide, kSide, {one}},
                   {map("b.tif"), kSide, kSide, {one}}}),
            "");
  const fs::path file = folder_.path() / "out/predictions.gpkg";
  const GDALDatasetH layers =
      GDALOpenEx(file.c_str(), GDAL_OF_VECTOR, nullptr, nullptr, nullptr);
  ASSERT_NE(layers, nullptr);
  const OGRLayerH layer = GDALDatasetGetLayer(layers, 0);
  EXPECT_STREQ(OSRGetAuthorityCode(OGR_L_GetSpatialRef(layer), nullptr),
               "32633");
  ASSERT_EQ(OGR_L_GetFeatureCount(layer, 1), 2);
  const OGRFeatureH feature = OGR_L_GetNextFeature(layer);
  OGREnvelope box;
  OGR_G_GetEnvelope(OGR_F_GetGeometryRef(feature), &box);
  EXPECT_NEAR(box.MinX, 500005, 1e-6);
  EXPECT_NEAR(box.MaxX, 500015, 1e-6);
  EXPECT_NEAR(box.MinY, 5400000 - 30, 1e-6);
  EXPECT_NEAR(box.MaxY, 5400000 - 10, 1e-6);
  const auto text = [&](const char* name) {
    return std::string(
        OGR_F_GetFieldAsString(feature, OGR_F_GetFieldIndex(feature, name)));
  };
  EXPECT_EQ(text("class"), "1");
  EXPECT_EQ(text("name"), kNames[1]);
  EXPECT_EQ(text("confidence"), "0.25");
  EXPECT_EQ(text("image"), map("a.tif").string());
  EXPECT_EQ(text("x1") + " " + text("y2"), "10 60");
  OGR_F_Destroy(feature);
  GDALClose(layers);
  EXPECT_EQ(geojson()["features"][1]["properties"]["image"],
            map("b.tif").string());
}

TEST_F(MapLayersTest, NothingFoundIsAnEmptyLayer) {
  make_map(map("a.tif"), "EPSG:32633", kHalfMetres);
  ASSERT_EQ(write({{map("a.tif"), kSide, kSide, {}}}), "");
  EXPECT_TRUE(geojson()["features"].empty());
  EXPECT_EQ(system_of_package(), "32633");
  EXPECT_FALSE(fs::exists(folder_.path() / "out/predictions.gpkg.partial"));
}

TEST_F(MapLayersTest, AnImageThatIsNoMapIsReported) {
  folder_.write("picture.bmp", encode_bmp(test_picture(64, 64, 1)));
  EXPECT_EQ(write({{map("picture.bmp"), 64, 64, {}}}),
            "it has no coordinates: it is no GeoTIFF");
  make_map(map("a.tif"), "", kHalfMetres);
  EXPECT_THAT(write({{map("a.tif"), kSide, kSide, {}}}),
              HasSubstr("no coordinate reference system"));
  make_map(map("b.tif"), "EPSG:32633", kHalfMetres);
  EXPECT_THAT(write({{map("b.tif"), kSide, kSide / 2, {}}}),
              HasSubstr("turned or mirrored"));
}

// Pictures of numbers that need a range are rotated like other pictures.
TEST_F(MapLayersTest, AMapOfNumbersThatIsStoredTurnedIsReported) {
  write_tiff(
      map("turned.tif"), cv::Mat(kSide, kSide, CV_32F, cv::Scalar(1)),
      {.orientation = ORIENTATION_BOTRIGHT, .format = SAMPLEFORMAT_IEEEFP});
  GDALAllRegister();
  const GDALDatasetH turned = GDALOpen(map("turned.tif").c_str(), GA_Update);
  ASSERT_TRUE(place_map(turned, kHalfMetres, "EPSG:32633"));
  GDALClose(turned);
  EXPECT_THAT(write({{map("turned.tif"), kSide, kSide, {}}}),
              HasSubstr("turned or mirrored"));
}

metrics::Detection box_at(float x1, float y1, float x2, float y2) {
  metrics::Detection one;
  one.box = {x1, y1, x2, y2};
  return one;
}

// The map begins at longitude 179.5 and has 0.01 degrees a pixel.
TEST_F(MapLayersTest, ABoxOverThe180thMeridianIsTwoPolygons) {
  make_map(map("a.tif"), "EPSG:4326", {179.5, 0.01, 0, 10, 0, -0.01}, 100);
  ASSERT_EQ(write({{map("a.tif"),
                    100,
                    100,
                    {box_at(40, 10, 60, 20), box_at(60, 10, 70, 20)}}}),
            "");
  const nlohmann::json features = geojson()["features"];
  ASSERT_EQ(features.size(), 2);
  EXPECT_EQ(features[0]["geometry"]["type"], "MultiPolygon");
  EXPECT_EQ(features[0]["geometry"]["coordinates"].size(), 2);
  // The second box is completely beyond the meridian.
  EXPECT_EQ(features[1]["geometry"]["type"], "Polygon");
  for (const nlohmann::json& point :
       features[1]["geometry"]["coordinates"][0]) {
    EXPECT_LT(point[0].get<double>(), -179);
  }
}

TEST_F(MapLayersTest, MapsOfTheWholeWorldEndAtTheirEdge) {
  make_map(map("a.tif"), "EPSG:4326", {-180.0000000001, 3.6, 0, 90, 0, -1.8},
           100);
  ASSERT_EQ(write({{map("a.tif"), 100, 100, {box_at(0, 10, 5, 20)}}}), "");
  EXPECT_EQ(geojson()["features"][0]["geometry"]["type"], "Polygon");
}

TEST_F(MapLayersTest, BoxesWithoutAPlaceOnEarthAreCounted) {
  // The first map is on Mars; the second has latitudes beyond the pole.
  make_map(map("mars.tif"), "ESRI:104905", {10, 0.01, 0, 10, 0, -0.01}, 100);
  EXPECT_THAT(write({{map("mars.tif"), 100, 100, {box_at(1, 1, 2, 2)}}}),
              HasSubstr("predictions.geojson lacks its boxes: its coordinate "
                        "reference system has no way to longitude"));
  make_map(map("pole.tif"), "EPSG:4326", {10, 0.1, 0, 90.5, 0, -0.1}, 100);
  EXPECT_THAT(write({{map("pole.tif"),
                      100,
                      100,
                      {box_at(1, 1, 2, 2), box_at(1, 50, 2, 52)}}}),
              HasSubstr("predictions.geojson lacks 1 box, beyond the bounds"));
  EXPECT_EQ(geojson()["features"].size(), 1);
}

TEST_F(MapLayersTest, AFileThatCannotBeWrittenIsNamed) {
  make_map(map("a.tif"), "EPSG:32633", kHalfMetres);
  // Folders block the paths of the files.
  for (const std::string name : {"predictions.geojson", "predictions.gpkg"}) {
    SCOPED_TRACE(name);
    fs::remove_all(folder_.path() / "out");
    fs::create_directories(folder_.path() / "out" / (name + ".partial/folder"));
    EXPECT_THAT(error_text(
                    [&] {
                      write({{map("a.tif"), kSide, kSide, {}}});
                    },
                    ExitCode::kResource),
                HasSubstr(name));
  }
}

TEST_F(MapLayersTest, AnEarlierPackageThatIsOpenElsewhereStays) {
  make_map(map("a.tif"), "EPSG:32633", kHalfMetres);
  folder_.write("out/predictions.gpkg", "old");
  folder_.write("out/predictions.gpkg-wal", "pages");
  EXPECT_THROW(write({{map("a.tif"), kSide, kSide, {}}}), Error);
  EXPECT_EQ(fs::file_size(folder_.path() / "out/predictions.gpkg"), 3);
  EXPECT_FALSE(fs::exists(folder_.path() / "out/predictions.gpkg.partial"));
}

}  // namespace
}  // namespace headroom::detect
