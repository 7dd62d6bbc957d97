// Tests labels with map coordinates, and tiles of maps, through the built
// plugin. Places are compared with those of PROJ and GDAL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <proj.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/worker/data/data_files.h"
#include "tests/worker/maps/map_files.h"
#include "worker/data/codecs/geo_tags.h"
#include "worker/data/codecs/image.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/labels/folder_index.h"
#include "worker/data/labels/verification.h"
#include "worker/data/tiles/tiling.h"
#include "worker/detect/map_layers.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kHeight = 60, kWidth = 100;
constexpr Transform kNorthUp = {500'000, 0.25, 0, 5'400'000, 0, -0.25};
constexpr Transform kTurned = {500'000, 0.25, 0.05, 5'400'000, 0.04, -0.2};

// Corners of a box in pixels.
struct PixelExtent {
  double x1, y1, x2, y2;
};

// Returns the coordinates of a pixel in the map's own coordinate system.
std::array<double, 2> place_of_pixel(const Transform& t, double x, double y) {
  return {t[0] + x * t[1] + y * t[2], t[3] + x * t[4] + y * t[5]};
}

// Converts places of one system to another with PROJ. East or longitude comes
// first.
class Projection {
 public:
  Projection(const std::string& from, const std::string& to)
      : context_(proj_context_create()) {
    PJ* const given = proj_create_crs_to_crs(context_, from.c_str(), to.c_str(),
                                             /*area=*/nullptr);
    projection_ = proj_normalize_for_visualization(context_, given);
    proj_destroy(given);
  }
  ~Projection() {
    proj_destroy(projection_);
    proj_context_destroy(context_);
  }
  Projection(const Projection&) = delete;
  Projection& operator=(const Projection&) = delete;

  std::array<double, 2> at(const std::array<double, 2>& place) const {
    const PJ_COORD moved =
        proj_trans(projection_, PJ_FWD, proj_coord(place[0], place[1], 0, 0));
    return {moved.xy.x, moved.xy.y};
  }

 private:
  PJ_CONTEXT* context_;
  PJ* projection_;
};

// Features of class 0 for boxes in pixels of a map in the system `own`. Their
// corners are written in `system`.
nlohmann::json collection_of(const std::vector<PixelExtent>& boxes,
                             const Transform& transform, const std::string& own,
                             const std::string& system) {
  const Projection projection(own, system);
  nlohmann::json features = nlohmann::json::array();
  for (const PixelExtent& box : boxes) {
    nlohmann::json ring = nlohmann::json::array();
    for (const auto& [x, y] : {std::pair{box.x1, box.y1},
                               {box.x2, box.y1},
                               {box.x2, box.y2},
                               {box.x1, box.y2},
                               {box.x1, box.y1}}) {
      ring.push_back(projection.at(place_of_pixel(transform, x, y)));
    }
    nlohmann::json rings = nlohmann::json::array();
    rings.push_back(ring);
    features.push_back(
        {{"type", "Feature"},
         {"properties", {{"class", "car"}}},
         {"geometry", {{"type", "Polygon"}, {"coordinates", rings}}}});
  }
  nlohmann::json collection = {{"type", "FeatureCollection"},
                               {"features", features}};
  if (system != "OGC:CRS84") {
    collection["crs"] = {{"type", "name"}, {"properties", {{"name", system}}}};
  }
  return collection;
}

const std::vector<PixelExtent> kBoxes = {
    {10, 20, 30.5, 40.25}, {0, 0, 12, 9}, {80, 50, 100, 60}, {33, 1, 34, 3}};

void expect_boxes(std::span<const BoxLabel> labels,
                  const std::vector<PixelExtent>& boxes) {
  ASSERT_EQ(labels.size(), boxes.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    const BoxLabel& label = labels[i];
    const PixelExtent& box = boxes[i];
    EXPECT_NEAR((label.cx - label.w / 2) * kWidth, box.x1, 0.01) << i;
    EXPECT_NEAR((label.cx + label.w / 2) * kWidth, box.x2, 0.01) << i;
    EXPECT_NEAR((label.cy - label.h / 2) * kHeight, box.y1, 0.01) << i;
    EXPECT_NEAR((label.cy + label.h / 2) * kHeight, box.y2, 0.01) << i;
  }
}

class MapLabels : public ::testing::Test {
 protected:
  MapLabels() { name_built_plugin(); }

  void add_map(const std::string& name, const Transform& transform,
               const std::string& system, uint64_t seed = 1) {
    write_geotiff(folder_.path() / "images" / name,
                  test_picture(kHeight, kWidth, seed), transform, system);
  }
  configs::DataConfig config(const std::string& train = "images") {
    return configs::load_data_config(folder_.write(
        "data.yaml", "train: " + train + "\nval: " + train +
                         "\nimages: images\nnames: [bus, car]\n"));
  }
  std::vector<std::string> faults(const DataReport& report) {
    std::vector<std::string> texts;
    for (const DataFault& fault : report.faults) {
      texts.push_back(to_string(fault));
    }
    return texts;
  }

  TemporaryFolder folder_;
};

struct LabelSystems {
  const char* map;
  Transform transform;
  const char* labels;
};

class LabelsOfSystem : public MapLabels,
                       public ::testing::WithParamInterface<LabelSystems> {};

TEST_P(LabelsOfSystem, BoxesAreWherePROJHasThem) {
  const LabelSystems& systems = GetParam();
  add_map("a.tif", systems.transform, systems.map);
  folder_.write("labels/a.geojson", collection_of(kBoxes, systems.transform,
                                                  systems.map, systems.labels)
                                        .dump());
  const IndexedDataset indexed = index_dataset(config(), Split::kTrain);
  EXPECT_THAT(faults(indexed.report), IsEmpty());
  expect_boxes(indexed.dataset.labels(0), kBoxes);
  EXPECT_EQ(indexed.dataset.labels(0)[0].class_index, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Systems, LabelsOfSystem,
    ::testing::Values(
        LabelSystems{"EPSG:32633", kNorthUp, "OGC:CRS84"},
        LabelSystems{"EPSG:32633", kNorthUp, "EPSG:32633"},
        LabelSystems{"EPSG:32633", kTurned, "EPSG:3857"},
        LabelSystems{"EPSG:32633", kTurned, "urn:ogc:def:crs:EPSG::32632"},
        LabelSystems{
            "EPSG:4326", {13.25, 1e-6, 0, 52.5, 0, -1e-6}, "EPSG:32633"},
        LabelSystems{
            "EPSG:4326", {13.25, 1e-6, 0, 52.5, 0, -1e-6}, "EPSG:4326"},
        LabelSystems{
            "EPSG:3031", {-1.5e6, 0.5, 0, 9e5, 0, -0.5}, "OGC:CRS84"}));

// The files of detect are read as labels, also across the 180th meridian, where
// a box is written as two polygons.
TEST_F(MapLabels, FilesOfDetectGiveTheSameBoxes) {
  const std::vector<std::pair<Transform, std::string>> maps = {
      {kTurned, "EPSG:32633"},
      {{179.5, 0.01, 0, 10, 0, -0.01}, "EPSG:4326"},
      {{-180, 3.6, 0, 90, 0, -3}, "EPSG:4326"}};
  for (size_t i = 0; i < maps.size(); ++i) {
    SCOPED_TRACE(i);
    fs::remove_all(folder_.path() / "images");
    add_map("a.tif", maps[i].first, maps[i].second);
    detect::ImageDetections found{
        folder_.path() / "images/a.tif", kHeight, kWidth, {}};
    for (const PixelExtent& box : kBoxes) {
      metrics::Detection one;
      one.box = {static_cast<float>(box.x1), static_cast<float>(box.y1),
                 static_cast<float>(box.x2), static_cast<float>(box.y2)};
      one.confidence = 0.5F;
      found.detections.push_back(one);
    }
    // The model's class 0 is the data set's class 1.
    const std::vector<std::string> names = {"car"};
    detect::FolderOptions options;
    options.may_exist = true;
    detect::DetectionFolder out(folder_.path() / "out", names, options);
    detect::MapLayers layers(built_plugin(), out, {true, false}, names);
    ASSERT_EQ(layers.add(found), "");
    layers.finish();
    fs::create_directories(folder_.path() / "labels");
    for (const char* name : {"labels/a.geojson", "all.geojson"}) {
      fs::copy_file(folder_.path() / "out/predictions.geojson",
                    folder_.path() / name,
                    fs::copy_options::overwrite_existing);
    }
    for (const char* train : {"images", "all.geojson"}) {
      SCOPED_TRACE(train);
      const IndexedDataset indexed =
          index_dataset(config(train), Split::kTrain);
      EXPECT_THAT(faults(indexed.report), IsEmpty());
      ASSERT_EQ(indexed.dataset.size(), 1);
      expect_boxes(indexed.dataset.labels(0), kBoxes);
      EXPECT_EQ(indexed.dataset.labels(0)[0].class_index, 1);
    }
  }
}

// GDAL subtracts full turns from a longitude one by one. With a coordinate of
// 1e200 metres this would never end.
TEST_F(MapLabels, CoordinatesFarBeyondTheEarthHaveNoPlace) {
  add_map("a.tif", {13.25, 1e-6, 0, 52.5, 0, -1e-6}, "EPSG:4326");
  folder_.write("labels/a.geojson",
                R"({"type": "FeatureCollection", "crs": {"properties":
{"name": "EPSG:3857"}}, "features": [{"type": "Feature", "properties": {"class":
1}, "geometry": {"type": "Polygon", "coordinates": [[[1e200, 0], [2e200, 0],
[1e200, 9]]]}}]})");
  const VerifiedSplit train = verify_data(config(), {})[0];
  EXPECT_THAT(faults(train.report),
              ElementsAre(HasSubstr("a vertex has no place in the image's")));
  add_map("far.tif", {1e200, 1, 0, 0, 0, -1}, "EPSG:3857");
  detect::ImageDetections found{
      folder_.path() / "images/far.tif", kHeight, kWidth, {}};
  metrics::Detection& one = found.detections.emplace_back();
  one.box = {1, 1, 5, 5};
  const std::vector<std::string> names = {"car"};
  detect::DetectionFolder out(folder_.path() / "out", names, {});
  detect::MapLayers layers(built_plugin(), out, {true, false}, names);
  EXPECT_THAT(layers.add(found), HasSubstr("lacks 1 box, beyond the bounds"));
}

// PROJ looks up a code, and crashes if the code is of another kind than
// expected: EPSG:9001 is a unit without longitudes.
TEST_F(MapLabels, ASystemThatItsOwnCodesContradictIsRefused) {
  add_map("a.tif", kNorthUp, "EPSG:32633");
  const fs::path file = folder_.path() / "images/a.tif";
  auto tags = *codecs::read_geo_tags(file);
  // This key replaces the last key, which has the unit of the map.
  constexpr std::array<uint16_t, 4> kGeographicCode = {2048, 0, 1, 9001};
  ASSERT_GE(tags.keys.size(), 12U);
  std::ranges::copy(kGeographicCode, tags.keys.end() - 4);
  folder_.write("images/a.tif", codecs::encode_tiff_bytes(
                                    test_picture(kHeight, kWidth, 1), &tags));
  std::string reason;
  EXPECT_FALSE(built_plugin().place_of(file.string(), reason));
  EXPECT_EQ(reason,
            "the codes of its coordinate reference system contradict it");
}

TEST_F(MapLabels, OneFileLabelsNeighbouringMaps) {
  Transform east = kNorthUp;
  east[0] += kWidth * kNorthUp[1];
  add_map("west.tif", kNorthUp, "EPSG:32633");
  add_map("east.tif", east, "EPSG:32633");
  add_map("far.tif", {100'000, 0.25, 0, 5'400'000, 0, -0.25}, "EPSG:32633");
  folder_.write("images/none.bmp", encode_bmp(test_picture(8, 8, 1)));
  folder_.write("all.geojson",
                collection_of({{90, 10, 120, 20}, {1000, 0, 1010, 10}},
                              kNorthUp, "EPSG:32633", "OGC:CRS84")
                    .dump());
  const IndexedDataset indexed =
      index_dataset(config("all.geojson"), Split::kTrain);
  ASSERT_EQ(indexed.dataset.size(), 2);
  EXPECT_EQ(indexed.dataset.path(0).filename(), "east.tif");
  expect_boxes(indexed.dataset.labels(0), {{0, 10, 20, 20}});
  expect_boxes(indexed.dataset.labels(1), {{90, 10, 100, 20}});
  EXPECT_THAT(faults(indexed.report), IsEmpty());
  EXPECT_THAT(indexed.report.notes, ElementsAre(HasSubstr("2 images in "),
                                                HasSubstr("1 polygon of ")));
  EXPECT_THAT(indexed.report.notes[0], HasSubstr("none.bmp: it is no GeoTIFF"));
}

TEST_F(MapLabels, ABorderIsNoPartOfTheNeighbour) {
  Transform east = kNorthUp;
  east[0] += kWidth * kNorthUp[1];
  add_map("west.tif", kNorthUp, "EPSG:32633");
  add_map("east.tif", east, "EPSG:32633");
  for (const char* system : {"OGC:CRS84", "EPSG:3857"}) {
    folder_.write("all.geojson",
                  collection_of({{60, 10, 100, 20}, {100, 30, 120, 40}},
                                kNorthUp, "EPSG:32633", system)
                      .dump());
    const Dataset found =
        index_dataset(config("all.geojson"), Split::kTrain).dataset;
    ASSERT_EQ(found.size(), 2);
    expect_boxes(found.labels(0), {{0, 30, 20, 40}});
    expect_boxes(found.labels(1), {{60, 10, 100, 20}});
  }
}

// A polygon in longitude and latitude, and its box.
struct RoundTheEarth {
  const char* map;
  Transform transform;
  PixelExtent polygon, box;
  bool is_for_table = true;  // the map shows enough of it
};

TEST_F(MapLabels, APolygonStaysInOnePieceRoundTheEarth) {
  const Transform pacific = {190, 0.6, 0, 30, 0, -0.5};
  const std::vector<RoundTheEarth> cases = {
      {"EPSG:4326", pacific, {200, 0, 210, 10}, {16.667, 40, 33.333, 60}},
      {"EPSG:4326", pacific, {-150, 0, -140, 10}, {33.333, 40, 50, 60}},
      {"EPSG:4326",
       {0, 3.6, 0, 30, 0, -0.5},
       {-2, 0, 10, 10},
       {0, 40, 2.778, 60}},
      {"EPSG:4326",
       {160, 0.2, 0, 30, 0, -0.5},
       {-30, 0, 162, 10},
       {0, 40, 10, 60},
       false},
      // This polygon is not cut at the 180th meridian.
      {"EPSG:4326",
       {175, 0.1, 0, 30, 0, -0.5},
       {179, 0, -179, 10},
       {40, 40, 60, 60}},
      {"EPSG:3857",
       {20'037'508.343 - 50'000, 1000, 0, 30'000, 0, -1000},
       {-179.9, -0.1, -179.8, 0.1},
       {61.132, 18.868, 72.264, 41.132}}};
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const RoundTheEarth& one = cases[i];
    add_map("a.tif", one.transform, one.map);
    const auto& [west, south, east, north] = one.polygon;
    const nlohmann::json ring = {
        {west, south}, {east, south}, {east, north}, {west, north}};
    nlohmann::json collection =
        collection_of({kBoxes[0]}, one.transform, one.map, "OGC:CRS84");
    collection["features"][0]["geometry"]["coordinates"][0] = ring;
    for (const char* name : {"labels/a.geojson", "all.geojson"}) {
      folder_.write(name, collection.dump());
    }
    for (const char* train : {"images", "all.geojson"}) {
      if (!one.is_for_table && std::string(train) != "images") continue;
      SCOPED_TRACE(train);
      const IndexedDataset indexed =
          index_dataset(config(train), Split::kTrain);
      ASSERT_EQ(indexed.dataset.size(), 1);
      expect_boxes(indexed.dataset.labels(0), {one.box});
    }
  }
}

// The map is a plate carree in metres. How many metres go round the Earth is
// unknown.
TEST_F(MapLabels, AProjectionThatGoesRoundTheEarthIsNamed) {
  folder_.write(
      "labels/a.geojson",
      collection_of(kBoxes, kNorthUp, "EPSG:32633", "OGC:CRS84").dump());
  const auto said = [&](double west) {
    add_map("a.tif", {west, 1000, 0, 30'000, 0, -1000}, "EPSG:4087");
    return faults(verify_data(config(), {})[0].report);
  };
  EXPECT_THAT(said(20'037'508 - 50'000),
              ElementsAre(HasSubstr("it goes on beyond the 180th meridian")));
  EXPECT_THAT(said(20'037'508 - 101'000),
              AllOf(SizeIs(kBoxes.size()), Each(Not(HasSubstr("180th")))));
}

TEST_F(MapLabels, AFileBesideTheMapDoesNotMoveIt) {
  add_map("a.tif", kNorthUp, "EPSG:32633");
  folder_.write("images/a.tif.aux.xml",
                "<PAMDataset><GeoTransform>500050, 1, 0, 5400000, 0, -1"
                "</GeoTransform></PAMDataset>");
  folder_.write("images/a.tfw", "1\n0\n0\n-1\n500050\n5400000\n");
  folder_.write(
      "labels/a.geojson",
      collection_of(kBoxes, kNorthUp, "EPSG:32633", "OGC:CRS84").dump());
  expect_boxes(index_dataset(config(), Split::kTrain).dataset.labels(0),
               kBoxes);
}

TEST_F(MapLabels, HeightsAndCentresOfTheEarthAreNoMaps) {
  add_map("a.tif", kNorthUp, "EPSG:32633");
  for (const char* system : {"EPSG:5773", "EPSG:4978"}) {
    nlohmann::json collection =
        collection_of(kBoxes, kNorthUp, "EPSG:32633", "OGC:CRS84");
    collection["crs"] = {{"properties", {{"name", system}}}};
    folder_.write("labels/a.geojson", collection.dump());
    EXPECT_THAT(faults(verify_data(config(), {})[0].report),
                ElementsAre(HasSubstr(std::string(system) +
                                      " has no places on a map")));
  }
}

TEST_F(MapLabels, VerifyNamesTheFaults) {
  add_map("a.tif", kNorthUp, "EPSG:32633");
  nlohmann::json collection = collection_of(
      {kBoxes[0], {90, 10, 120, 20}, {300, 0, 310, 10}, kBoxes[3]}, kNorthUp,
      "EPSG:32633", "OGC:CRS84");
  collection["features"][3]["properties"]["class"] = "tree";
  collection["features"].push_back(
      {{"type", "Feature"},
       {"properties", {{"class", "car"}}},
       {"geometry", {{"type", "Point"}, {"coordinates", {15, 48}}}}});
  folder_.write("labels/a.geojson", collection.dump(1));
  add_map("b.tif", kNorthUp, "");
  folder_.write("images/c.bmp", encode_bmp(test_picture(8, 8, 1)));
  for (const char* name : {"labels/b.geojson", "labels/c.geojson"}) {
    folder_.write(name, collection.dump());
  }
  const auto splits = verify_data(config(), {});
  const VerifiedSplit& train = splits[0];
  ASSERT_THAT(train.images, SizeIs(3));
  expect_boxes(train.images[0].boxes, {kBoxes[0], {90, 10, 100, 20}});
  const std::vector<std::string> said = faults(train.report);
  ASSERT_THAT(said, SizeIs(6));
  EXPECT_THAT(said[0], HasSubstr("sticks out of the image (feature 2: "));
  EXPECT_THAT(said[1], HasSubstr("outside the image (feature 3: "));
  EXPECT_THAT(said[2], HasSubstr("feature 5: its geometry is a Point"));
  EXPECT_THAT(said[3], HasSubstr("bad class (class 'tree', but "));
  EXPECT_THAT(said[4], HasSubstr("b.tif has no coordinates: its tags name no "
                                 "coordinate reference system"));
  EXPECT_THAT(said[5], HasSubstr("c.bmp has no coordinates: it is no GeoTIFF"));
  EXPECT_EQ(train.refusal, "labels have unknown classes");
}

TEST_F(MapLabels, TheIndexNoticesLabelsThatChanged) {
  constexpr int kImages = 260;  // fewer have no index
  add_map("0.tif", kNorthUp, "EPSG:32633");
  const auto labels_of_box = [](const PixelExtent& box) {
    return collection_of({box}, kNorthUp, "EPSG:32633", "OGC:CRS84").dump();
  };
  for (int i = 0; i < kImages; ++i) {
    const std::string name = std::to_string(i);
    if (i > 0) {
      fs::copy_file(folder_.path() / "images/0.tif",
                    folder_.path() / "images" / (name + ".tif"));
    }
    folder_.write("labels/" + name + ".geojson", labels_of_box(kBoxes[0]));
  }
  std::this_thread::sleep_for(FolderIndex::kYoung +
                              std::chrono::milliseconds(100));
  IndexOptions options;
  options.kept_in = folder_.path() / "kept";
  const configs::DataConfig data = config();
  const auto scan = [&] { return index_dataset(data, Split::kTrain, options); };
  const uint64_t digest = scan().dataset.digest();
  EXPECT_THAT(scan().report.notes, IsEmpty());
  EXPECT_EQ(scan().dataset.digest(), digest);
  // First a label is moved, then a map together with its label.
  folder_.write("labels/7.geojson", labels_of_box(kBoxes[1]));
  const IndexedDataset moved = scan();
  EXPECT_NE(moved.dataset.digest(), digest);
  EXPECT_THAT(
      moved.report.notes,
      ElementsAre(HasSubstr("1 changed, first " +
                            (folder_.path() / "images/7.tif").string())));
  fs::remove(folder_.path() / "images/9.tif");
  Transform east = kNorthUp;
  east[0] += 2;  // 8 pixels
  add_map("9.tif", east, "EPSG:32633");
  const Dataset after = scan().dataset;
  for (int64_t i = 0; i < after.size(); ++i) {
    PixelExtent box = kBoxes[0];
    const std::string name = after.path(i).filename().string();
    if (name == "7.tif") box = kBoxes[1];
    if (name == "9.tif") box = {box.x1 - 8, box.y1, box.x2 - 8, box.y2};
    expect_boxes(after.labels(i), {box});
  }
}

// Expects that the tile has its place and the map's reference system, as GDAL
// reads them.
void expect_tile(const fs::path& file, const fs::path& map, int64_t row,
                 int64_t column) {
  const GDALDatasetH tile = GDALOpen(file.c_str(), GA_ReadOnly);
  const GDALDatasetH whole = GDALOpen(map.c_str(), GA_ReadOnly);
  ASSERT_TRUE(tile != nullptr && whole != nullptr);
  Transform of_tile{}, of_whole{};
  ASSERT_EQ(GDALGetGeoTransform(tile, of_tile.data()), CE_None);
  ASSERT_EQ(GDALGetGeoTransform(whole, of_whole.data()), CE_None);
  const auto corner = place_of_pixel(of_whole, static_cast<double>(column),
                                     static_cast<double>(row));
  EXPECT_NEAR(of_tile[0], corner[0], 1e-6);
  EXPECT_NEAR(of_tile[3], corner[1], 1e-6);
  for (const size_t i : {1, 2, 4, 5}) EXPECT_EQ(of_tile[i], of_whole[i]);
  EXPECT_TRUE(OSRIsSame(GDALGetSpatialRef(tile), GDALGetSpatialRef(whole)));
  EXPECT_EQ(GDALGetRasterColorInterpretation(GDALGetRasterBand(tile, 1)),
            GCI_RedBand);
  GDALClose(tile);
  GDALClose(whole);
}

// A reference system that has no number of an authority such as EPSG.
constexpr const char* kOwnSystem =
    "+proj=tmerc +lat_0=10 +lon_0=15 +k=0.9 +x_0=5000 +y_0=100 +ellps=bessel "
    "+towgs84=500,100,400,1,2,3,4 +units=m";

TEST_F(MapLabels, TilesAreMapsWithTheirLabels) {
  const std::vector<std::pair<Transform, std::string>> maps = {
      {kNorthUp, "EPSG:32633"},
      {kTurned, "EPSG:32633"},
      {{13.25, 1e-6, 0, 52.5, 0, -2e-6}, "EPSG:4326"},
      {kNorthUp, kOwnSystem}};
  for (size_t i = 0; i < maps.size(); ++i) {
    const std::string name = std::to_string(i);
    add_map(name + ".tif", maps[i].first, maps[i].second, i);
    // The last map has its own system, and its labels are in pixels.
    if (i + 1 < maps.size()) {
      folder_.write(
          "labels/" + name + ".geojson",
          collection_of(kBoxes, maps[i].first, maps[i].second, "OGC:CRS84")
              .dump());
    } else {
      folder_.write("labels/" + name + ".txt", "1 .5 .5 .25 .25\n");
    }
  }
  tiles::TilingRequest request;
  request.output = folder_.path() / "tiles";
  request.tiles = {.height = 32,
                   .width = 40,
                   .overlap = 0.1,
                   .min_visible = 0,
                   .empty_share = 1};
  const auto splits = tiles::tile_data(config(), request);
  EXPECT_THAT(faults(splits[0].report), IsEmpty());
  int64_t found = 0;
  for (const auto& entry :
       fs::directory_iterator(request.output / "images/train")) {
    const std::string stem = entry.path().stem().string();
    SCOPED_TRACE(stem);
    ASSERT_EQ(entry.path().extension(), ".tif");
    const size_t first = stem.find('_'), second = stem.rfind('_');
    const int row = std::stoi(stem.substr(first + 1, second - first - 1));
    const int column = std::stoi(stem.substr(second + 1));
    const std::string number = stem.substr(0, first);
    expect_tile(entry.path(), folder_.path() / "images" / (number + ".tif"),
                row, column);
    const codecs::ImageResult pixels = codecs::decode_image(entry.path());
    EXPECT_TRUE(
        same_pixels(pixels.pixels,
                    test_picture(kHeight, kWidth, std::stoull(number))(cv::Rect(
                        column, row, pixels.size.width, pixels.size.height))));
    ++found;
  }
  EXPECT_EQ(found, splits[0].tiles);
  // The labels of a tile in pixels, and the labels of its map in coordinates,
  // give boxes at the same places.
  const auto tiled = configs::load_data_config(request.output / "data.yaml");
  const Dataset in_pixels = index_dataset(tiled, Split::kTrain).dataset;
  fs::remove_all(request.output / "labels/train");
  for (int64_t i = 0; i < in_pixels.size(); ++i) {
    const std::string stem = in_pixels.path(i).stem().string();
    const fs::path own =
        folder_.path() / "labels" / (stem.substr(0, 1) + ".geojson");
    if (!fs::exists(own)) continue;
    folder_.write("tiles/labels/train/" + stem + ".geojson", read_bytes(own));
  }
  const Dataset on_map = index_dataset(tiled, Split::kTrain).dataset;
  ASSERT_EQ(on_map.size(), in_pixels.size());
  int64_t compared = 0;
  for (int64_t i = 0; i < on_map.size(); ++i) {
    if (on_map.path(i).stem().string()[0] == '3') continue;
    const auto one = on_map.labels(i), other = in_pixels.labels(i);
    ASSERT_EQ(one.size(), other.size()) << on_map.path(i);
    for (size_t box = 0; box < one.size(); ++box, ++compared) {
      EXPECT_NEAR(one[box].cx, other[box].cx, 0.01 / 32);
      EXPECT_NEAR(one[box].cy, other[box].cy, 0.01 / 32);
      EXPECT_NEAR(one[box].w, other[box].w, 0.02 / 32);
      EXPECT_NEAR(one[box].h, other[box].h, 0.02 / 32);
    }
  }
  EXPECT_GT(compared, 12);
}

}  // namespace
}  // namespace headroom::labels
