// Real pictures as maps. The boxes that detect finds in the GeoTIFF of a
// photograph are those of the photograph, moved to their places on the map.
// Read as labels, they give the same boxes again.
#include <gtest/gtest.h>
#include <ogr_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/worker/data/data_files.h"
#include "tests/worker/maps/map_files.h"
#include "tests/worker/tools/tool_run.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/dataset.h"

namespace headroom::tools {
namespace {

namespace fs = std::filesystem;

// Five centimetres a pixel, near Minsk, a little turned.
constexpr Transform kOverMinsk = {542'000,   0.05,  0.004,
                                  5'972'000, 0.004, -0.05};
constexpr const char* kSystem = "EPSG:32635";

struct FoundBox {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
};

// The boxes of a layer in the pixels of its map; their order is detect's.
std::vector<FoundBox> boxes_of_layer(const fs::path& file) {
  std::vector<FoundBox> boxes;
  const GDALDatasetH layers =
      GDALOpenEx(file.c_str(), GDAL_OF_VECTOR, nullptr, nullptr, nullptr);
  if (layers == nullptr) return boxes;
  const OGRLayerH layer = GDALDatasetGetLayer(layers, 0);
  const auto& t = kOverMinsk;
  const double determinant = t[1] * t[5] - t[2] * t[4];
  while (const OGRFeatureH feature = OGR_L_GetNextFeature(layer)) {
    const OGRGeometryH ring =
        OGR_G_GetGeometryRef(OGR_F_GetGeometryRef(feature), 0);
    FoundBox box{1e9, 1e9, -1e9, -1e9};
    for (int i = 0; i < OGR_G_GetPointCount(ring); ++i) {
      const double east = OGR_G_GetX(ring, i) - t[0];
      const double north = OGR_G_GetY(ring, i) - t[3];
      const double x = (east * t[5] - north * t[2]) / determinant;
      const double y = (north * t[1] - east * t[4]) / determinant;
      box = {std::min(box.x1, x), std::min(box.y1, y), std::max(box.x2, x),
             std::max(box.y2, y)};
    }
    boxes.push_back(box);
    OGR_F_Destroy(feature);
  }
  GDALClose(layers);
  return boxes;
}

double distance(const FoundBox& a, const FoundBox& b) {
  return std::max({std::abs(a.x1 - b.x1), std::abs(a.y1 - b.y1),
                   std::abs(a.x2 - b.x2), std::abs(a.y2 - b.y2)});
}

TEST(SlowAerialMaps, BoxesAreThoseOfThePhotographMoved) {
  const fs::path photographs = shared_data_set("aerial_cars/large_4000x2250");
  if (!fs::exists(photographs)) GTEST_SKIP() << kSharedDataMissing;
  name_built_plugin();
  const TemporaryFolder folder;
  const fs::path weights = folder.path() / "w.safetensors";
  write_weights(weights, 1, 640, 0.2);
  int64_t compared = 0, as_labels_compared = 0;
  double worst = 0, worst_as_labels = 0;
  for (const char* name : {"DJI_0010", "DJI_0020", "DJI_0030"}) {
    SCOPED_TRACE(name);
    const fs::path photograph = photographs / (std::string(name) + ".JPG");
    const std::string own = std::string(name) + "/" + name;
    const fs::path map = folder.path() / "images" / (own + ".tif");
    const cv::Mat pixels = codecs::decode_image(photograph).pixels;
    ASSERT_FALSE(pixels.empty());
    write_geotiff(map, pixels, kOverMinsk, kSystem,
                  {"COMPRESS=DEFLATE", "TILED=YES"});
    for (const fs::path& source : {photograph, map}) {
      std::vector<std::string> words = {
          "detect",
          "--weights=" + weights.string(),
          "--source=" + source.string(),
          "--output=" +
              (folder.path() / (source.filename().string() + ".out")).string(),
          "--conf-thres=0",
          "--max-det=300",
          "--tile=640",
          "--nosave",
          "--save-json"};
      if (source == map) {
        words.insert(words.end(), {"--save-gpkg", "--save-geojson"});
      }
      ASSERT_EQ(call(find_tool_command("detect"), words), 0);
    }
    const fs::path of_map = folder.path() / (map.filename().string() + ".out");
    const nlohmann::json plain =
        parsed(folder.path() / (photograph.filename().string() + ".out") /
               "predictions.json");
    const std::vector<FoundBox> moved =
        boxes_of_layer(of_map / "predictions.gpkg");
    ASSERT_EQ(moved.size(), plain.size());
    ASSERT_GE(moved.size(), 100U);
    std::vector<FoundBox> expected;
    for (const nlohmann::json& one : plain) {
      const nlohmann::json& box = one["bbox"];
      const double x = box[0], y = box[1], w = box[2], h = box[3];
      expected.push_back({x, y, x + w, y + h});
    }
    for (size_t i = 0; i < expected.size(); ++i, ++compared) {
      worst = std::max(worst, distance(expected[i], moved[i]));
    }

    const fs::path as_label = folder.path() / "labels" / (own + ".geojson");
    fs::create_directories(as_label.parent_path());
    fs::copy_file(of_map / "predictions.geojson", as_label);
    const auto data = configs::load_data_config(folder.write(
        "data.yaml", std::string("train: images/") + name + "\nval: images/" +
                         name + "\nnames: [class0]\n"));
    const labels::IndexedDataset read =
        labels::index_dataset(data, labels::Split::kTrain);
    const auto as_labels = read.dataset.labels(0);
    // An untrained network also finds boxes without width.
    EXPECT_EQ(static_cast<int64_t>(as_labels.size()) + read.report.num_faults(),
              static_cast<int64_t>(expected.size()));
    std::vector<FoundBox> labelled;
    for (const labels::BoxLabel& one : as_labels) {
      const double width = pixels.cols, height = pixels.rows;
      labelled.push_back(
          {(one.cx - one.w / 2.0) * width, (one.cy - one.h / 2.0) * height,
           (one.cx + one.w / 2.0) * width, (one.cy + one.h / 2.0) * height});
    }
    for (const FoundBox& box : expected) {
      if (std::min(box.x2 - box.x1, box.y2 - box.y1) < 0.02) continue;
      double nearest = 1e9;
      for (const FoundBox& one : labelled) {
        nearest = std::min(nearest, distance(box, one));
      }
      worst_as_labels = std::max(worst_as_labels, nearest);
      ++as_labels_compared;
    }
  }
  std::printf(
      "%lld boxes: at most %.6f px from the photograph's; %lld of them as "
      "labels: %.6f px\n",
      static_cast<long long>(compared), worst,
      static_cast<long long>(as_labels_compared), worst_as_labels);
  EXPECT_GE(as_labels_compared, 300);
  EXPECT_LE(worst, 0.01);
  EXPECT_LE(worst_as_labels, 0.01);
}

}  // namespace
}  // namespace headroom::tools
