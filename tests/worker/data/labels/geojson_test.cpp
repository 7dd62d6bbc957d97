// GeoJSON is converted to boxes, with a plugin that needs no library of maps.
#include "worker/data/labels/geojson.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "tests/worker/data/fake_maps.h"
#include "tests/worker/data/refusal.h"
#include "worker/data/labels/box_rules.h"
#include "worker/data/labels/label_reader.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string collection(const std::string& features,
                       const std::string& before = "") {
  return "{\"type\": \"FeatureCollection\", " + before + "\"features\": [\n" +
         features + "]}";
}

// The ring of a rectangle, whose corners are given in pixels of FakeMaps'
// picture.
std::string ring(double x1, double y1, double x2, double y2) {
  const auto point = [](double x, double y) {
    return "[" + std::to_string(1000 + 2 * x) + ", " +
           std::to_string(5000 - 4 * y) + "]";
  };
  return "[" + point(x1, y1) + ", " + point(x2, y1) + ", " + point(x2, y2) +
         ", " + point(x1, y2) + ", " + point(x1, y1) + "]";
}

std::string feature(const std::string& properties, const std::string& rings,
                    const std::string& type = "Polygon") {
  return "{\"type\": \"Feature\", \"properties\": {" + properties +
         "}, \"geometry\": {\"type\": \"" + type + "\", \"coordinates\": [" +
         rings + "]}}";
}

TEST(GeoJsonText, NothingNeedsToBeInOrder) {
  const GeoJson content = parse_geojson(
      "{\"features\": [{\"geometry\": {\"coordinates\": [[[0, 1, 99], [2, 3],\n"
      "[4, 5]]], \"bbox\": [[1], {}], \"type\": \"Polygon\"},\n\"id\": "
      "{\"type\":"
      " \"Point\"}, \"properties\": {\"a\": {\"class\": 9}, \"class\": \"b\", "
      "\"image\": \"a.tif\"}, \"type\": \"Feature\"}], \"crs\": "
      "{\"properties\": "
      "{\"name\": \"urn:ogc:def:crs:EPSG::32633\"}, \"type\": \"name\"}, "
      "\"type\": \"FeatureCollection\"}");
  ASSERT_EQ(content.reason, "");
  EXPECT_EQ(content.reference_system, "urn:ogc:def:crs:EPSG::32633");
  ASSERT_THAT(content.features, SizeIs(1));
  const GeoFeature& feature = content.features[0];
  EXPECT_EQ(feature.fault, "");
  EXPECT_EQ(feature.line, 1);
  EXPECT_EQ(std::get<std::string>(feature.class_value), "b");
  EXPECT_EQ(feature.image, "a.tif");
  EXPECT_THAT(feature.x, ElementsAre(0, 2, 4));
  EXPECT_THAT(feature.y, ElementsAre(1, 3, 5));
}

TEST(GeoJsonText, RingsAreOutlinesOrHoles) {
  const GeoJson content = parse_geojson(
      collection(feature("\"class\": 1",
                         "[" + ring(0, 0, 4, 4) + ", " + ring(1, 1, 2, 2) +
                             "], [" + ring(6, 6, 8, 8) + "]",
                         "MultiPolygon")));
  ASSERT_EQ(content.reason, "");
  ASSERT_THAT(content.features, SizeIs(1));
  const GeoFeature& feature = content.features[0];
  EXPECT_EQ(feature.fault, "");
  EXPECT_EQ(std::get<double>(feature.class_value), 1);
  ASSERT_THAT(feature.rings, SizeIs(3));
  EXPECT_FALSE(feature.rings[0].is_hole);
  EXPECT_TRUE(feature.rings[1].is_hole);
  EXPECT_FALSE(feature.rings[2].is_hole);
  EXPECT_EQ(feature.rings[2].end, 12);  // the closing vertex is not stored
}

TEST(GeoJsonText, GeometriesThatAreNoPolygonAreNamed) {
  const auto fault = [](const std::string& text) {
    const GeoJson content = parse_geojson(collection(text));
    EXPECT_EQ(content.reason, "");
    return content.features.empty() ? "no feature" : content.features[0].fault;
  };
  EXPECT_EQ(fault(feature("", "1, 2", "Point")),
            "its geometry is a Point, not a Polygon or MultiPolygon");
  EXPECT_EQ(fault(feature("", "[1, 2], [3, 4]", "LineString")),
            "its geometry is a LineString, not a Polygon or MultiPolygon");
  EXPECT_EQ(fault(R"({"type": "Feature", "geometry": null})"),
            "it has no geometry");
  for (const char* other : {"{}", "[[1]]", "7", "null", "\"a\"",
                            R"({"type": "Polygon", "coordinates": []})"}) {
    EXPECT_EQ(fault(other), "it is no Feature") << other;
  }
  for (const char* rings :
       {"", "1, 2", "[1, 2], [3, 4], [5, 6]", "[[1, 2], [3, 4], [1, 2]]",
        "[[1, 2], [3], [5, 6]]", "[[1, 2], [3, \"4\"], [5, 6]]",
        "[[1, 2], [3, 4], [5, 6], 7]", "[[1, 2], [3, 4], [5, 6], []]",
        "[[1, 2], [3, 4], [[5, 6]]]", "[[1, 2], [3, 4], {\"x\": 5}]",
        "[[[1, 2], [3, 4], [5, 6]]]", "[]"}) {
    EXPECT_EQ(fault(feature("", rings)),
              "its coordinates are not those of a Polygon")
        << rings;
  }
  EXPECT_EQ(fault(feature("", "[[1, 2], [3, 4], [5, 6]]", "MultiPolygon")),
            "its coordinates are not those of a MultiPolygon");
}

TEST(GeoJsonText, ATextThatIsNoCollectionIsRefusedAsAWhole) {
  const auto reason = [](const std::string& text) {
    const GeoJson content = parse_geojson(text);
    return std::to_string(content.reason_line) + ": " + content.reason;
  };
  EXPECT_EQ(reason(""), "1: an empty file, not GeoJSON in UTF-8");
  EXPECT_EQ(reason("<html>"), "1: text (HTML or XML), not GeoJSON in UTF-8");
  EXPECT_EQ(reason(R"({"type": "Topology", "features": []})"),
            "1: its type is Topology, not FeatureCollection");
  for (const char* other : {"[]", "7", R"({"type": "FeatureCollection"})",
                            R"({"type": "FeatureCollection", "features": {}})",
                            R"({"features": []})"}) {
    EXPECT_EQ(reason(other), "1: no FeatureCollection with a list of features");
  }
  EXPECT_THAT(reason("{\"type\":\n1e400}"), HasSubstr("2: no JSON ("));
  EXPECT_THAT(reason("{\n\n\"type\": NaN}"), HasSubstr("3: no JSON ("));
  EXPECT_THAT(reason(collection("", "\n\"crs\": null, ")),
              HasSubstr("2: its crs has no name"));
  EXPECT_THAT(reason(collection("", R"("crs": {"type": "link", "properties":
{"href": "http://example.com/crs"}}, )")),
              HasSubstr("1: its crs has no name"));
  for (const char* name : {"/etc/passwd", "http://example.com/EPSG:4326",
                           "EPSG:", ":4326", "+proj=utm +nadgrids=@a", "a:b:c",
                           "urn:ogc:def:crs:EPSG::1;", "WGS 84"}) {
    EXPECT_THAT(reason(collection("", R"("crs": {"properties": {"name": ")" +
                                          std::string(name) + "\"}}, ")),
                HasSubstr("is no name such as EPSG:32633"))
        << name;
  }
}

TEST(GeoJsonText, ACollectionIsRecognisedByItsRootUnderAnyName) {
  const TemporaryFolder folder;
  const auto is_one = [&](const std::string& text) {
    return is_geojson(folder.write("a.json", text));
  };
  const std::string last = R"("type": "FeatureCollection"})";
  EXPECT_TRUE(is_one(collection("")));
  EXPECT_TRUE(is_one("\xEF\xBB\xBF{" + last));
  EXPECT_TRUE(is_one(R"({"a": {"type": "b", "images": [1]}, "features": [)" +
                     feature("\"type\": 1", ring(0, 0, 4, 4)) + "], " + last));
  // Only the beginning of a file decides. Damage in the rest is reported when
  // the file is read.
  EXPECT_TRUE(is_one(R"({"type": "FeatureCollection", "features": })"));
  for (const std::string& other :
       {std::string(), std::string("[]"), "[" + collection("") + "]",
        "{\"a\": " + collection("") + "}", "{\"images\": [], " + last,
        "{\"annotations\": [], " + last, std::string("{\"type\": 1}"),
        R"({"type": "instances", )" + last, "{\"a\": NaN, " + last}) {
    EXPECT_FALSE(is_one(other)) << other;
  }
  EXPECT_FALSE(is_geojson(folder.path()));
  EXPECT_FALSE(is_geojson(folder.path() / "none.json"));
}

class GeoJsonLabels : public ::testing::Test {
 protected:
  static constexpr codecs::ImageSize kSize{20, 40};

  void add_image(const std::string& name) {
    folder_.write("images/" + name, encode_bmp(test_picture(20, 40, 1)));
  }
  std::string image(const std::string& name) const {
    return (folder_.path() / "images" / name).string();
  }
  // Reads the boxes of the image `name` from a file that has `features`.
  ImageLabels read(const std::string& features, const std::string& before = "",
                   const std::string& name = "map.bmp") {
    add_image(name);
    folder_.write("labels/" + fs::path(name).stem().string() + ".geojson",
                  collection(features, before));
    return open_geojson_files({image(name)}, classes_, maps_)->read(0, kSize);
  }
  // The reason why the reader has no labels at all for the image; "no fault" if
  // there is none.
  static std::string fault_of(const ImageLabels& labels) {
    return labels.fault ? to_string(*labels.fault) : "no fault";
  }
  // The fault of an image whose label files exist already.
  std::string fault_of(const std::string& name,
                       codecs::ImageSize size = kSize) {
    return fault_of(
        open_geojson_files({image(name)}, classes_, maps_)->read(0, size));
  }
  std::unique_ptr<LabelReader> table(const std::string& features) {
    report_ = {};
    return open_geojson_labels(
        folder_.write("all.geojson", collection(features)),
        folder_.path() / "images", classes_, report_, maps_);
  }

  TemporaryFolder folder_;
  FakeMaps maps_{20, 40};
  ClassRules classes_{{"car", "bus"}, false};
  DataReport report_;
};

constexpr const char* kPlane = R"("crs": {"properties": {"name": "EPSG:1"}}, )";

TEST_F(GeoJsonLabels, APolygonIsTheBoxOfAllItsVertices) {
  const ImageLabels labels =
      read(feature("\"class\": \"bus\"", ring(4, 5, 20, 15)) + ",\n" +
               feature("\"class\": 0",
                       "[" + ring(0, 0, 4, 4) + "], [" +
                           ring(36, 16, 40.001, 20) + "]",
                       "MultiPolygon"),
           kPlane);
  ASSERT_FALSE(labels.fault.has_value()) << labels.fault->what;
  EXPECT_THAT(labels.labels.faults, IsEmpty());
  EXPECT_THAT(labels.labels.boxes, ElementsAre(BoxLabel{1, .3F, .5F, .4F, .5F},
                                               BoxLabel{0, .5F, .5F, 1, 1}));
  EXPECT_EQ(labels.labels.num_polygons, 2);
  ASSERT_THAT(labels.labels.outlines, SizeIs(2));
  EXPECT_EQ(labels.labels.outlines[0][1], (OutlinePoint{.5, .25}));
}

TEST_F(GeoJsonLabels, PolygonsAreClippedToTheImageAndThoseOutsideAreNamed) {
  const ImageLabels labels =
      read(feature("\"class\": 1", ring(-10, 5, 20, 15)) + ",\n" +
               feature("\"class\": 1", ring(50, 5, 60, 15)) + ",\n" +
               feature("\"class\": 1", ring(1e12, 5, 1e13, 15)),
           kPlane);
  EXPECT_THAT(labels.labels.boxes,
              ElementsAre(BoxLabel{1, .25F, .5F, .5F, .5F}));
  ASSERT_THAT(labels.labels.faults, SizeIs(3));
  EXPECT_EQ(labels.labels.faults[0].kind, DataFaultKind::kOutOfRange);
  EXPECT_EQ(labels.labels.faults[1].kind, DataFaultKind::kOutside);
  EXPECT_THAT(
      to_string(labels.labels.faults[1]),
      HasSubstr("labels/map.geojson:3: outside the image (feature 2: "));
  EXPECT_THAT(to_string(labels.labels.faults[2]),
              HasSubstr("feature 3: a vertex has no place in the image's "
                        "coordinate reference system"));
}

TEST_F(GeoJsonLabels, TheClassIsANameOrANumber) {
  const std::string box = ring(1, 1, 5, 5);
  const auto class_of = [&](const std::string& properties) {
    const ImageLabels labels = read(feature(properties, box), kPlane);
    if (labels.labels.unknown_class) {
      return "unknown " + labels.labels.unknown_class->class_name;
    }
    return labels.labels.boxes.empty()
               ? labels.labels.faults.at(0).what
               : std::to_string(labels.labels.boxes[0].class_index);
  };
  EXPECT_EQ(class_of("\"class\": \"bus\""), "1");
  EXPECT_EQ(class_of("\"class\": 1.0"), "1");
  EXPECT_EQ(class_of("\"name\": \"bus\""), "1");
  // detect writes such properties if the model's classes have other numbers or
  // names.
  EXPECT_EQ(class_of("\"class\": 0, \"name\": \"bus\""), "1");
  EXPECT_EQ(class_of("\"class\": 0, \"name\": \"tree\""), "unknown 'tree'");
  EXPECT_EQ(class_of("\"class\": 0, \"name\": \"\""), "0");
  EXPECT_EQ(class_of("\"class\": 2"), "unknown 2");
  EXPECT_EQ(class_of("\"class\": \"tree\""), "unknown 'tree'");
  EXPECT_EQ(class_of("\"name\": \"tree\""), "unknown 'tree'");
  EXPECT_EQ(class_of("\"class\": 0.5"), "feature 1: class 0.5");
  EXPECT_EQ(class_of("\"class\": -1"), "feature 1: class -1");
  EXPECT_EQ(class_of("\"class\": true"),
            "feature 1: it has no property 'class'");
  classes_.single_cls = true;
  EXPECT_EQ(class_of("\"class\": \"tree\""), "0");
}

TEST_F(GeoJsonLabels, AnImageWithoutCoordinatesIsOneLine) {
  EXPECT_THAT(fault_of(read("", "", "plain.bmp")),
              HasSubstr("(polygons on a map, but " + image("plain.bmp") +
                        " has no coordinates: it is no GeoTIFF)"));
  EXPECT_THAT(
      fault_of(read("", R"("crs": {"properties": {"name": "EPSG:2"}}, )")),
      HasSubstr("(" + image("map.bmp") + ": there is no system EPSG:2)"));
}

TEST_F(GeoJsonLabels, WhyAnImageHasNoCoordinatesIsNamed) {
  add_image("map.bmp");
  folder_.write("labels/map.geojson", collection(""));
  EXPECT_THAT(fault_of("map.bmp", {10, 40}),
              HasSubstr("its map has 40 x 20 pixels, its picture 40 x 10"));
  folder_.write("labels/plain#2.geojson", collection(""));
  EXPECT_THAT(fault_of("plain.tif#2"),
              HasSubstr("it is a page, and only whole files are read as maps"));
}

TEST_F(GeoJsonLabels, InvalidFeaturesTakeNoMemory) {
  const auto many = [](const std::string& one, int64_t count) {
    std::string text = one;
    for (int64_t i = 1; i < count; ++i) text += "," + one;
    return text;
  };
  EXPECT_EQ(parse_geojson(collection(many("0", kMostForeignFeatures))).reason,
            "");
  for (const char* one : {"0", "[]", "null"}) {
    EXPECT_EQ(parse_geojson(collection(many(one, 2000))).reason,
              "more than 1000 of its features are no objects");
  }
  const std::string text =
      many("{}", 5000) + ", " + feature("\"class\": 1", ring(1, 1, 5, 5));
  const GeoJson content = parse_geojson(collection(text));
  EXPECT_THAT(content.features, SizeIs(kMostFaultyFeatures + 1));
  EXPECT_EQ(content.other_faults, 5000 - kMostFaultyFeatures);
  EXPECT_EQ(content.features.back().number, 5001);
  const LabelFile labels = read(text, kPlane).labels;
  EXPECT_THAT(labels.boxes, SizeIs(1));
  ASSERT_THAT(labels.faults, SizeIs(kMostFaultyFeatures + 1));
  EXPECT_THAT(labels.faults.back().what, HasSubstr("features more without"));
}

// A map's coordinates are those of its pixels as stored, so a map that is
// stored rotated is refused.
TEST_F(GeoJsonLabels, AMapThatIsStoredTurnedIsNamed) {
  fs::create_directories(folder_.path() / "images");
  for (const uint16_t orientation :
       {ORIENTATION_TOPRIGHT, ORIENTATION_BOTRIGHT}) {
    write_tiff(image("turned.tif"), test_picture(20, 40, 1),
               {.orientation = orientation});
    folder_.write("labels/turned.geojson", collection(""));
    EXPECT_THAT(fault_of("turned.tif"),
                HasSubstr("turned.tif has no coordinates: its pixels are "
                          "stored turned or mirrored"));
  }
}

TEST_F(GeoJsonLabels, MetresWithoutACrsAreNamed) {
  const ImageLabels labels = read(
      feature("\"class\": 1", "[[3e9, 5820000], [3e9, 6e6], [3.1e9, 6e6]]"));
  ASSERT_THAT(labels.labels.faults, SizeIs(1));
  EXPECT_THAT(labels.labels.faults[0].what,
              HasSubstr("3e+09, 5.82e+06 is no longitude and latitude, and the "
                        "file has no crs"));
}

TEST_F(GeoJsonLabels, AFileThatIsNoGeoJsonIsNamedByItsLine) {
  add_image("map.bmp");
  folder_.write("labels/map.geojson", "{\n\"type\": }");
  EXPECT_THAT(fault_of("map.bmp"),
              HasSubstr("labels/map.geojson:2: unreadable labels (no JSON ("));
}

TEST_F(GeoJsonLabels, AFileForManyImagesIsCutAtTheirEdges) {
  for (const char* name : {"left.bmp", "right.bmp", "plain.bmp"}) {
    add_image(name);
  }
  // The features are a polygon over both maps, a polygon in the right map, a
  // polygon over both maps whose property names the left map, a polygon in
  // neither map, and a point.
  const auto reader = table(
      feature("\"class\": 1", ring(30, 5, 50, 15)) + ",\n" +
      feature("\"class\": 0", ring(60, 0, 80, 20)) + ",\n" +
      feature("\"class\": 0, \"image\": \"/x/left.bmp\"", ring(35, 0, 50, 20)) +
      ",\n" + feature("\"class\": 0", ring(100, 0, 110, 20)) + ",\n" +
      feature("\"class\": 0", "1000, 5000", "Point"));
  EXPECT_THAT(reader->images(),
              ElementsAre(image("left.bmp"), image("right.bmp")));
  const LabelFile left = reader->read(0, kSize).labels;
  EXPECT_THAT(left.boxes, ElementsAre(BoxLabel{1, .875F, .5F, .25F, .5F},
                                      BoxLabel{0, .9375F, .5F, .125F, 1}));
  ASSERT_THAT(left.faults, SizeIs(1));  // for the feature that names left.bmp
  EXPECT_EQ(left.faults[0].kind, DataFaultKind::kOutOfRange);
  const LabelFile right = reader->read(1, kSize).labels;
  EXPECT_THAT(right.boxes, ElementsAre(BoxLabel{1, .125F, .5F, .25F, .5F},
                                       BoxLabel{0, .75F, .5F, .5F, 1}));
  EXPECT_THAT(right.faults, IsEmpty());
  ASSERT_THAT(report_.notes, SizeIs(2));
  EXPECT_THAT(report_.notes[0], HasSubstr("1 image in "));
  EXPECT_THAT(report_.notes[0], HasSubstr("plain.bmp: it is no GeoTIFF"));
  EXPECT_THAT(report_.notes[1], HasSubstr("1 polygon of "));
  EXPECT_THAT(report_.notes[1], HasSubstr("not used; the first is in line 5"));
  ASSERT_THAT(report_.faults, SizeIs(1));
  EXPECT_THAT(to_string(report_.faults[0]),
              HasSubstr("feature 5: its geometry is a Point"));
}

// Four maps in two rows and two columns.
TEST_F(GeoJsonLabels, APolygonLabelsNoMapThatItNeverEnters) {
  for (const char* name : {"a.bmp", "right.bmp", "low.bmp", "lowright.bmp"}) {
    add_image(name);
  }
  const auto reader = table(
      // A polygon like an L; the low map shows only 0.15 of its area.
      feature("\"class\": 1",
              "[[1010, 4980], [1150, 4980], [1150, 4968], "
              "[1016, 4968], [1016, 4860], [1010, 4860]]") +
      ",\n" +
      feature("\"class\": 0",
              "[" + ring(10, 10, 14, 14) + "], [" + ring(50, 30, 54, 34) + "]",
              "MultiPolygon"));
  EXPECT_THAT(
      reader->images(),
      ElementsAre(image("a.bmp"), image("lowright.bmp"), image("right.bmp")));
  const BoxLabel part{0, .3F, .6F, .1F, .2F};
  const LabelFile first = reader->read(0, kSize).labels;
  EXPECT_THAT(first.boxes,
              ElementsAre(BoxLabel{1, .5625F, .625F, .875F, .75F}, part));
  EXPECT_THAT(first.outlines[0], SizeIs(6));
  EXPECT_THAT(reader->read(1, kSize).labels.boxes, ElementsAre(part));
  EXPECT_THAT(reader->read(2, kSize).labels.boxes,
              ElementsAre(BoxLabel{1, .4375F, .325F, .875F, .15F}));
  EXPECT_THAT(report_.faults, IsEmpty());
}

TEST_F(GeoJsonLabels, APolygonThatAMapHardlyShowsBelongsToItsNeighbour) {
  for (const char* name : {"left.bmp", "right.bmp"}) add_image(name);
  const auto reader =
      table(feature("\"class\": 0", ring(30, 5, 40.004, 15)) + ",\n" +
            feature("\"class\": 1", ring(30, 5, 48, 15)) + ",\n" +
            feature("\"class\": 0", ring(39.5, 2, 40.5, 4)) + ",\n" +
            feature("\"class\": 0", ring(39.996, 0, 50, 4)));
  ASSERT_THAT(reader->images(), SizeIs(2));
  EXPECT_THAT(reader->read(0, kSize).labels.boxes,
              ElementsAre(BoxLabel{0, .875F, .5F, .25F, .5F},
                          BoxLabel{1, .875F, .5F, .25F, .5F}));
  EXPECT_THAT(reader->read(1, kSize).labels.boxes,
              ElementsAre(BoxLabel{1, .1F, .5F, .2F, .5F},
                          BoxLabel{0, .125F, .1F, .25F, .2F}));
  ASSERT_THAT(report_.faults, SizeIs(1));
  EXPECT_THAT(report_.faults[0].what, HasSubstr("feature 3: no image of "));
  EXPECT_THAT(report_.faults[0].what, HasSubstr(" shows 0.3 of its area"));
}

// A comb of three arms; only the middle arm is inside the image.
TEST(PartsOfRings, AnEdgeThatIsGoneAlongThereAndBackIsNoPart) {
  const PixelRing comb = {{-10, -10}, {5, -10}, {5, -5}, {-5, -5},
                          {-5, 5},    {5, 5},   {5, 8},  {-5, 8},
                          {-5, 30},   {5, 30},  {5, 35}, {-10, 35}};
  const auto parts = parts_in({comb}, 40, 20);
  ASSERT_THAT(parts, SizeIs(1));
  EXPECT_THAT(parts[0], SizeIs(4));
  const BoxExtent extent = extent_of(parts);
  EXPECT_EQ(extent.x1, 0);
  EXPECT_EQ(extent.x2, 5);
  EXPECT_EQ(extent.y1, 5);
  EXPECT_EQ(extent.y2, 8);
}

TEST_F(GeoJsonLabels, AnInvalidFileForManyImagesIsRefused) {
  add_image("left.bmp");
  folder_.write("all.geojson", "{\n]");
  EXPECT_THAT(refusal_of([&] {
                open_geojson_labels(folder_.path() / "all.geojson", "",
                                    classes_, report_, maps_);
              }),
              HasSubstr("all.geojson:2: no JSON ("));
}

TEST_F(GeoJsonLabels, WithoutThePluginOneLineNamesTheRemedy) {
  setenv("HEADROOM_MAP_PLUGIN", "/nowhere/libheadroom_maps.so", 1);
  add_image("map.bmp");
  const fs::path file = folder_.write("labels/map.geojson", collection(""));
  configs::DataConfig config = data_config(folder_, folder_.path() / "images");
  const auto refusal = [&] {
    return refusal_of(
        [&] { open_split(config, Split::kTrain, false, report_); });
  };
  EXPECT_THAT(refusal(), HasSubstr(file.string() +
                                   " has coordinates of maps, but this build "
                                   "knows no maps: there is no /nowhere/"));
  // An image with labels in pixels needs no coordinates.
  folder_.write("labels/map.txt", "0 .5 .5 .1 .1\n");
  EXPECT_EQ(refusal(), "not refused");
  for (const fs::path& named :
       {file, folder_.write("map.json", collection(""))}) {
    config.train = {named};
    EXPECT_THAT(refusal(), HasSubstr("has coordinates of maps"));
  }
  unsetenv("HEADROOM_MAP_PLUGIN");
}

}  // namespace
}  // namespace headroom::labels
