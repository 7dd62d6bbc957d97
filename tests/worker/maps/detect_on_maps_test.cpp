// headroom detect on GeoTIFFs finds the boxes of the same picture without
// coordinates, and writes them at the places that the tags give, for one file
// and for a mosaic of several files.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/parity.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/maps/map_files.h"
#include "tests/worker/tools/tool_run.h"
#include "worker/data/codecs/image.h"
#include "worker/metrics/detection.h"

namespace headroom::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kHeight = 96, kWidth = 160;
constexpr std::array<double, 6> kTransform = {13.25, 2e-6, 0, 52.5, 0, -1e-6};

void detect(const fs::path& folder, const std::string& source,
            const std::vector<std::string>& more) {
  name_built_plugin();
  std::vector<std::string> words = {
      "detect",
      "--weights=" +
          (folder / (fs::exists(folder / "w.pt") ? "w.pt" : "w.safetensors"))
              .string(),
      "--source=" + (folder / source).string(),
      "--output=" + (folder / (source + ".out")).string(),
      "--nosave",
      "--save-json",
      "--save-geojson"};
  words.insert(words.end(), more.begin(), more.end());
  ASSERT_EQ(call(find_tool_command("detect"), words), 0);
}

TEST(DetectOnMaps, TheBoxesAreThoseOfThePlainPictureMoved) {
  const TemporaryFolder folder;
  const cv::Mat picture = test_picture(kHeight, kWidth, 1);
  folder.write("plain.bmp", encode_bmp(picture));
  write_geotiff(folder.path() / "map.tif", picture,
                {.transform = kTransform, .system = "EPSG:4326"});
  write_weights(folder.path() / "w.safetensors", 2, 64, 0.02);
  for (const std::string name : {"plain.bmp", "map.tif"}) {
    detect(folder.path(), name,
           {"--tile=64", "--conf-thres=0", "--max-det=20"});
  }
  const nlohmann::json plain =
      parsed(folder.path() / "plain.bmp.out/predictions.json");
  const nlohmann::json features =
      parsed(folder.path() / "map.tif.out/predictions.geojson")["features"];
  ASSERT_EQ(plain.size(), 20);
  ASSERT_EQ(features.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    const nlohmann::json& box = plain[i]["bbox"];
    double west = 1e9, north = -1e9, east = -1e9, south = 1e9;
    for (const nlohmann::json& point :
         features[i]["geometry"]["coordinates"][0]) {
      west = std::min(west, point[0].get<double>());
      east = std::max(east, point[0].get<double>());
      south = std::min(south, point[1].get<double>());
      north = std::max(north, point[1].get<double>());
    }
    const double x1 = box[0], y1 = box[1], width = box[2], height = box[3];
    const auto& t = kTransform;
    EXPECT_NEAR((west - t[0]) / t[1], x1, 0.01);
    EXPECT_NEAR((east - t[0]) / t[1], x1 + width, 0.01);
    EXPECT_NEAR((north - t[3]) / t[5], y1, 0.01);
    EXPECT_NEAR((south - t[3]) / t[5], y1 + height, 0.01);
    EXPECT_EQ(features[i]["properties"]["class"], plain[i]["category_id"]);
  }
  EXPECT_TRUE(
      parsed(folder.path() / "plain.bmp.out/predictions.geojson")["features"]
          .empty());
}

// An object of a layer, in pixels of the whole picture.
struct MapObject {
  int class_index = 0;
  double confidence = 0;
  std::array<double, 4> box{};  // x1, y1, x2, y2
};

// Returns the objects of a layer, the most confident first.
std::vector<MapObject> objects_of(const fs::path& results,
                                  const std::array<double, 6>& transform) {
  std::vector<MapObject> objects;
  const nlohmann::json layer = parsed(results / "predictions.geojson");
  for (const nlohmann::json& feature : layer["features"]) {
    const nlohmann::json& properties = feature["properties"];
    MapObject object{
        properties["class"], properties["confidence"], {1e9, 1e9, -1e9, -1e9}};
    for (const nlohmann::json& point : feature["geometry"]["coordinates"][0]) {
      const std::array<double, 2> pixel = {
          (point[0].get<double>() - transform[0]) / transform[1],
          (point[1].get<double>() - transform[3]) / transform[5]};
      for (size_t axis = 0; axis < 2; ++axis) {
        object.box[axis] = std::min(object.box[axis], pixel[axis]);
        object.box[axis + 2] = std::max(object.box[axis + 2], pixel[axis]);
      }
    }
    // An untrained network also finds lines and points at borders.
    if (object.box[2] - object.box[0] < 1) continue;
    if (object.box[3] - object.box[1] < 1) continue;
    objects.push_back(object);
  }
  std::ranges::stable_sort(objects, std::ranges::greater(),
                           &MapObject::confidence);
  return objects;
}

// Cuts the picture into 2 x 2 files of `side` pixels at its corners.
void write_quarters(const fs::path& folder, const cv::Mat& picture, int side) {
  fs::create_directories(folder);
  for (int i = 0; i < 4; ++i) {
    const int x = i % 2 * (picture.cols - side);
    const int y = i / 2 * (picture.rows - side);
    auto transform = kTransform;
    transform[0] += x * transform[1];
    transform[3] += y * transform[5];
    write_geotiff(folder / ("part" + std::to_string(i) + ".tif"),
                  picture(cv::Rect(x, y, side, side)).clone(),
                  {.transform = transform, .system = "EPSG:4326"});
  }
}

// The tiles of the whole picture begin at 0, 32, 64, 96 and 128. The tiles of
// the parts and of their seams begin there too.
TEST(DetectOnMaps, AMosaicHasTheObjectsOfTheWholePictureOnce) {
  const TemporaryFolder folder;
  constexpr int kWhole = 192;
  const cv::Mat picture = test_picture(kWhole, kWhole, 1);
  fs::create_directories(folder.path() / "whole");
  write_geotiff(folder.path() / "whole/map.tif", picture,
                {.transform = kTransform, .system = "EPSG:4326"});
  write_quarters(folder.path() / "touching", picture, 96);
  write_quarters(folder.path() / "overlapping", picture, 128);
  write_weights(folder.path() / "w.safetensors", 2, 64, 0.2);
  for (const std::string name : {"whole", "touching", "overlapping"}) {
    detect(folder.path(), name,
           {"--tile=64", "--conf-thres=0.0001", "--max-det=10000",
            "--tile-overlap=0.5"});
  }
  const auto whole = objects_of(folder.path() / "whole.out", kTransform);
  ASSERT_GT(whole.size(), 100u);
  int across = 0;  // objects on a seam of the touching parts
  for (const MapObject& object : whole) {
    across += (object.box[0] < 96 && object.box[2] > 96) ||
              (object.box[1] < 96 && object.box[3] > 96);
  }
  EXPECT_GT(across, 20);
  for (const std::string name : {"touching", "overlapping"}) {
    SCOPED_TRACE(name);
    const auto parts = objects_of(folder.path() / (name + ".out"), kTransform);
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(parts[i].class_index, whole[i].class_index);
      EXPECT_FLOAT_EQ(parts[i].confidence, whole[i].confidence);
      for (size_t side = 0; side < 4; ++side) {
        EXPECT_NEAR(parts[i].box[side], whole[i].box[side], 0.01);
      }
    }
  }
}

double overlap_of(const MapObject& a, const MapObject& b) {
  const auto corners = [](const MapObject& one) {
    return metrics::Corners{
        static_cast<float>(one.box[0]), static_cast<float>(one.box[1]),
        static_cast<float>(one.box[2]), static_cast<float>(one.box[3])};
  };
  return metrics::corner_iou(corners(a), corners(b), 0);
}

// Real objects, which are cut at any place. The files touch, or overlap by less
// than tiles do.
TEST(DetectOnMaps, BloodCellsOnSeamsAreFoundOnce) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const TemporaryFolder folder;
  const codecs::ImageResult image = codecs::decode_image(
      parity_path("../datasets/bccd/images/test/BloodImage_00007.jpg"));
  ASSERT_TRUE(image.ok()) << image.reason;
  const cv::Mat picture = image.pixels(cv::Rect(60, 0, 480, 480)).clone();
  fs::create_directories(folder.path() / "whole");
  write_geotiff(folder.path() / "whole/map.tif", picture,
                {.transform = kTransform, .system = "EPSG:4326"});
  write_quarters(folder.path() / "touching", picture, 240);
  write_quarters(folder.path() / "overlapping", picture, 270);
  fs::copy(parity_path("weights/bccd_v5n.pt"), folder.path() / "w.pt");
  for (const std::string name : {"whole", "touching", "overlapping"}) {
    detect(folder.path(), name,
           {"--img=320", "--tile=240", "--tile-overlap=0.5"});
  }
  const auto whole = objects_of(folder.path() / "whole.out", kTransform);
  ASSERT_GE(whole.size(), 10u);
  for (const std::string name : {"touching", "overlapping"}) {
    SCOPED_TRACE(name);
    const auto parts = objects_of(folder.path() / (name + ".out"), kTransform);
    int across = 0;
    for (const MapObject& object : whole) {
      if (object.confidence < 0.5) continue;  // may be missed in other tiles
      across += (object.box[0] < 235 && object.box[2] > 245) ||
                (object.box[1] < 235 && object.box[3] > 245);
      EXPECT_EQ(std::ranges::count_if(parts,
                                      [&](const MapObject& other) {
                                        return other.class_index ==
                                                   object.class_index &&
                                               overlap_of(object, other) > 0.5;
                                      }),
                1)
          << object.box[0] << " " << object.box[1] << " " << object.box[2]
          << " " << object.box[3] << " " << object.confidence;
    }
    EXPECT_GE(across, 3);
  }
}

// Without tiles, seams are not searched, so that no box may be dropped because
// of a seam.
TEST(DetectOnMaps, WithoutTilesEveryBoxIsInTheLayer) {
  const TemporaryFolder folder;
  write_quarters(folder.path() / "parts", test_picture(192, 192, 1), 96);
  write_weights(folder.path() / "w.safetensors", 2, 64, 0.02);
  detect(folder.path(), "parts", {"--conf-thres=0", "--max-det=20"});
  EXPECT_EQ(parsed(folder.path() / "parts.out/predictions.json").size(), 80u);
  EXPECT_EQ(parsed(folder.path() / "parts.out/predictions.geojson")["features"]
                .size(),
            80u);
}

TEST(DetectOnMaps, ARepeatedMapIsPlainAndTheOthersStayAMosaic) {
  const TemporaryFolder folder;
  write_quarters(folder.path() / "parts", test_picture(192, 192, 1), 96);
  write_weights(folder.path() / "w.safetensors", 2, 64, 0.2);
  const fs::path part = folder.path() / "parts/part0.tif";
  const fs::path repeat = folder.path() / "parts/part0_again.tif";
  // Returns the features of the repeated map, and those of the other maps.
  const auto detected = [&](const std::string& source) {
    detect(folder.path(), source,
           {"--exist-ok", "--tile=64", "--conf-thres=0.0001", "--max-det=10000",
            "--tile-overlap=0.5"});
    nlohmann::json layer =
        parsed(folder.path() / (source + ".out") / "predictions.geojson");
    std::pair<nlohmann::json, nlohmann::json> features;
    for (nlohmann::json& one : layer["features"]) {
      const fs::path image = one["properties"]["image"].get<std::string>();
      one["properties"].erase("image");
      (image.filename() == repeat.filename() ? features.first : features.second)
          .push_back(one);
    }
    return features;
  };
  const auto alone = detected("parts").second;
  fs::copy(part, repeat);
  fs::create_directories(folder.path() / "plain");
  fs::copy(part, folder.path() / "plain" / repeat.filename());
  const auto plain = detected("plain").first;
  ::testing::internal::CaptureStderr();
  const auto both = detected("parts");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                repeat.string() + " shows the same place as " + part.string() +
                ": its boxes are merged with no other map's"),
            std::string::npos);
  EXPECT_GT(both.first.size(), 20u);
  EXPECT_EQ(both.first, plain);
  EXPECT_GT(both.second.size(), 100u);
  EXPECT_EQ(both.second, alone);
}

// In pixels, the boxes of a part are those that `headroom detect` finds if it
// is given only that file.
TEST(DetectOnMaps, AMosaicChangesNoBoxInPixels) {
  const TemporaryFolder folder;
  write_quarters(folder.path() / "parts", test_picture(192, 192, 1), 96);
  write_weights(folder.path() / "w.safetensors", 2, 64, 0.02);
  detect(folder.path(), "parts",
         {"--tile=64", "--conf-thres=0", "--max-det=20"});
  fs::create_directories(folder.path() / "alone");
  fs::rename(folder.path() / "parts/part3.tif",
             folder.path() / "alone/part3.tif");
  detect(folder.path(), "alone",
         {"--tile=64", "--conf-thres=0", "--max-det=20"});
  const auto both = parsed(folder.path() / "parts.out/predictions.json");
  const auto alone = parsed(folder.path() / "alone.out/predictions.json");
  ASSERT_EQ(alone.size(), 20u);
  ASSERT_EQ(both.size(), 80u);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(alone[i], both[60 + i]);
  }
}

}  // namespace
}  // namespace headroom::tools
