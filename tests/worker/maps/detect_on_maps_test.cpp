// headroom detect on a GeoTIFF: the boxes of the same picture without
// coordinates, at the places that its tags say.
#include <gdal.h>
#include <gtest/gtest.h>
#include <ogr_srs_api.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "tests/worker/data/data_files.h"
#include "worker/model/layer_graph.h"
#include "worker/tools/tool_command.h"
#include "worker/weights/weights.h"

namespace headroom::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kHeight = 96, kWidth = 160;
constexpr std::array<double, 6> kTransform = {13.25, 2e-6, 0, 52.5, 0, -1e-6};

void write_geotiff(const fs::path& file, const cv::Mat& rgb) {
  GDALAllRegister();
  const GDALDatasetH map =
      GDALCreate(GDALGetDriverByName("GTiff"), file.c_str(), rgb.cols, rgb.rows,
                 3, GDT_Byte, nullptr);
  std::array<double, 6> transform = kTransform;
  ASSERT_EQ(GDALSetGeoTransform(map, transform.data()), CE_None);
  const OGRSpatialReferenceH system = OSRNewSpatialReference(nullptr);
  ASSERT_EQ(OSRSetFromUserInput(system, "EPSG:4326"), OGRERR_NONE);
  ASSERT_EQ(GDALSetSpatialRef(map, system), CE_None);
  OSRDestroySpatialReference(system);
  ASSERT_EQ(GDALDatasetRasterIO(map, GF_Write, 0, 0, rgb.cols, rgb.rows,
                                rgb.data, rgb.cols, rgb.rows, GDT_Byte, 3,
                                nullptr, 3, static_cast<int>(rgb.step), 1),
            CE_None);
  GDALClose(map);
}

// A network that has learned nothing, and whose signals grow from layer to
// layer, so that pixels decide.
void write_weights(const fs::path& file) {
  const layers::ModelTable table = layers::load_model_table("yolov5n");
  model::LayerGraph model(table, 2, at::kFloat, 0);
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.name.ends_with("running_var")) entry.tensor->fill_(0.02);
  }
  auto metadata = layers::model_metadata("yolov5n", table);
  layers::describe_input(metadata, {64, 64}, 32);
  weights::save_weights(file, model.state(), metadata);
}

nlohmann::json parsed(const fs::path& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

TEST(DetectOnMaps, TheBoxesAreThoseOfThePlainPictureMoved) {
  setenv("HEADROOM_MAP_PLUGIN", HEADROOM_BUILD_DIR "/bin/libheadroom_maps.so",
         1);
  const TemporaryFolder folder;
  const cv::Mat picture = test_picture(kHeight, kWidth, 1);
  folder.write("plain.bmp", encode_bmp(picture));
  write_geotiff(folder.path() / "map.tif", picture);
  write_weights(folder.path() / "w.safetensors");
  for (const std::string name : {"plain.bmp", "map.tif"}) {
    std::vector<std::string> words = {
        "detect",
        "--weights=" + (folder.path() / "w.safetensors").string(),
        "--source=" + (folder.path() / name).string(),
        "--output=" + (folder.path() / (name + ".out")).string(),
        "--conf-thres=0",
        "--max-det=20",
        "--tile=64",
        "--nosave",
        "--save-json",
        "--save-geojson"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ASSERT_EQ(find_tool_command("detect")->run(static_cast<int>(words.size()),
                                               arguments.data()),
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
