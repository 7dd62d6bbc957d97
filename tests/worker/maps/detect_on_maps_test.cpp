// headroom detect on a GeoTIFF: the boxes of the same picture without
// coordinates, at the places that its tags say.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/worker/data/data_files.h"
#include "tests/worker/maps/map_files.h"

namespace headroom::tools {
namespace {

constexpr int kHeight = 96, kWidth = 160;
constexpr Transform kTransform = {13.25, 2e-6, 0, 52.5, 0, -1e-6};

TEST(DetectOnMaps, TheBoxesAreThoseOfThePlainPictureMoved) {
  name_built_plugin();
  const TemporaryFolder folder;
  const cv::Mat picture = test_picture(kHeight, kWidth, 1);
  folder.write("plain.bmp", encode_bmp(picture));
  write_geotiff(folder.path() / "map.tif", picture, kTransform, "EPSG:4326");
  write_weights(folder.path() / "w.safetensors", 2, 64, 0.02);
  for (const std::string name : {"plain.bmp", "map.tif"}) {
    ASSERT_EQ(
        run_tool({"detect",
                  "--weights=" + (folder.path() / "w.safetensors").string(),
                  "--source=" + (folder.path() / name).string(),
                  "--output=" + (folder.path() / (name + ".out")).string(),
                  "--conf-thres=0", "--max-det=20", "--tile=64", "--nosave",
                  "--save-json", "--save-geojson"}),
        0);
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

}  // namespace
}  // namespace headroom::tools
