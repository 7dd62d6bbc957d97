// GeoJSON whose name ends in .json, as many programs write it.
#include <gtest/gtest.h>

#include "tests/worker/data/data_files.h"
#include "tests/worker/maps/map_files.h"
#include "worker/data/labels/packing.h"
#include "worker/data/labels/verification.h"
#include "worker/data/tiles/tiling.h"
#include "worker/validation/detection_scores.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

// The type is after all other members.
constexpr const char* kCollection =
    R"({"crs": {"type": "name", "properties": {"name": "EPSG:32633"}},
"features": [{"type": "Feature", "properties": {"class": "car"}, "geometry":
{"type": "Polygon", "coordinates": [[[500002, 5399998], [500010, 5399998],
[500010, 5399990], [500002, 5399990]]]}}], "type": "FeatureCollection"})";

TEST(JsonCollection, EveryToolReadsIt) {
  name_built_plugin();
  const TemporaryFolder folder;
  write_geotiff(folder.path() / "images/a.tif", test_picture(60, 100, 1),
                Transform{500'000, 0.25, 0, 5'400'000, 0, -0.25}, "EPSG:32633");
  folder.write("all.json", kCollection);
  const auto data = configs::load_data_config(folder.write(
      "data.yaml",
      "train: all.json\nval: all.json\nimages: images\nnames: [car]\n"));
  const Dataset dataset = index_dataset(data, Split::kVal).dataset;
  ASSERT_EQ(dataset.size(), 1);
  ASSERT_EQ(dataset.labels(0).size(), 1U);
  EXPECT_EQ(dataset.labels(0)[0], (BoxLabel{0, .24F, .4F, .32F, 32.0F / 60}));

  EXPECT_EQ(verify_data(data, {})[0].report.boxes, 1);
  PackingRequest packs;
  packs.output = folder.path() / "packs";
  EXPECT_EQ(pack_data(data, packs)[0].report.boxes, 1);
  tiles::TilingRequest tiles;
  tiles.output = folder.path() / "tiles";
  tiles.tiles = {.height = 60, .width = 50, .overlap = 0};
  EXPECT_EQ(tiles::tile_data(data, tiles)[0].report.boxes, 1);

  // A GeoJSON is no COCO file, so detections get the ids of a data set without
  // COCO's annotations.
  configs::RunConfig run;
  run.save_json = true;
  validation::ImageFindings found;
  found.detections.emplace_back().confidence = .5F;
  validation::write_found(run, folder.path() / "val", dataset, data,
                          Split::kVal, {found});
  const auto written = parsed(folder.path() / "val/predictions.json");
  EXPECT_EQ(written.at(0).at("image_id"), "a");
}

}  // namespace
}  // namespace headroom::labels
