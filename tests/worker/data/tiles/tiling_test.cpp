// A data set of tiles can be read by training's own readers. If it could not be
// finished, no files are left.
#include "worker/data/tiles/tiling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tiffio.h>

#include <atomic>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "tests/worker/data/refusal.h"
#include "worker/data/codecs/geo_tags.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/labels/verification.h"

namespace headroom::tiles {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Tiling : public ::testing::Test {
 protected:
  Tiling() {
    // The first box of image a is in two tiles of 60 pixels, and its second box
    // is in one tile. Image c has no box.
    folder_.write("in/images/a.jpg", codecs::encode_jpeg(picture_, 90));
    folder_.write("in/labels/a.txt", "1 .5 .25 .25 .125\n0 .9 .9 .1 .1\n");
    folder_.write("in/images/a.bmp", encode_bmp(picture_));
    folder_.write("in/images/c.bmp", encode_bmp(test_picture(30, 40, 4)));
    yaml_ = folder_.write("in/data.yaml",
                          "train: images\nval: images\nnames: ['a: b', c]\n");
    request_.output = folder_.path() / "out";
    request_.tiles.height = request_.tiles.width = 60;
    request_.tiles.overlap = 0.2;
    request_.tiles.min_visible = 0.3;
    request_.tiles.empty_share = 1;
    request_.index.num_threads = 2;
  }

  std::map<std::string, std::string> files_below(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      files[fs::relative(entry.path(), folder).string()] =
          read_bytes(entry.path());
    }
    return files;
  }

  // The names in the folder of the output.
  std::vector<std::string> beside() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string refusal(ExitCode code) {
    return refusal_of(
        [&] { tile_data(configs::load_data_config(yaml_), request_); }, code);
  }

  TemporaryFolder folder_;
  const cv::Mat picture_ = test_picture(100, 160, 5);
  fs::path yaml_;
  TilingRequest request_;
};

TEST_F(Tiling, TheTilesAreASoundDataSet) {
  const configs::DataConfig config = configs::load_data_config(yaml_);
  const auto splits = tile_data(config, request_);
  ASSERT_EQ(splits.size(), 2u);
  const configs::DataConfig tiled =
      configs::load_data_config(request_.output / "data.yaml");
  EXPECT_EQ(tiled.names, config.names);
  const auto verified = labels::verify_data(tiled, {});
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(verified[i].report.num_faults(), 0);
    EXPECT_EQ(verified[i].refusal, "");
    EXPECT_EQ(verified[i].report.images, splits[i].tiles);
    EXPECT_EQ(verified[i].report.boxes, splits[i].boxes);
    EXPECT_EQ(verified[i].report.background, splits[i].empty_tiles);
  }
  // Each large image has 2 x 4 tiles; the small image is one tile.
  EXPECT_EQ(splits[0].in_grid, 17);
  EXPECT_EQ(splits[0].report.images, 3);
  EXPECT_EQ(splits[0].lost_boxes, 0);

  const auto files = files_below(request_.output);
  EXPECT_EQ(files.count("images/train/a_2_0_0.jpg"), 1u)
      << "of two images of a name, the second in order gets a number";
  const codecs::ImageResult tile =
      codecs::decode_image(request_.output / "images/train/a_40_33.png");
  EXPECT_TRUE(
      same_pixels(tile.pixels, picture_(cv::Rect(33, 40, 60, 60)).clone()));
  EXPECT_TRUE(same_pixels(
      codecs::decode_image(request_.output / "images/val/c_0_0.png").pixels,
      test_picture(30, 40, 4)));
  const auto jpeg = codecs::decode_image(folder_.path() / "in/images/a.jpg");
  EXPECT_EQ(
      files.at("images/train/a_2_40_33.jpg"),
      codecs::encode_jpeg(jpeg.pixels(cv::Rect(33, 40, 60, 60)).clone(), 95));
}

TEST_F(Tiling, TheNumberOfThreadsChangesNothing) {
  request_.tiles.empty_share = 0.5;
  const auto first = tile_data(configs::load_data_config(yaml_), request_);
  const auto files = files_below(request_.output);
  request_.output = folder_.path() / "again";
  request_.index.num_threads = 1;
  const auto again = tile_data(configs::load_data_config(yaml_), request_);
  EXPECT_EQ(files_below(request_.output), files);
  EXPECT_EQ(tiling_text(first), tiling_text(again));
}

TEST_F(Tiling, ADamagedImageIsLeftOutWithAllItsTiles) {
  const std::string bytes = codecs::encode_jpeg(picture_, 90);
  folder_.write("in/images/b.jpg", bytes.substr(0, bytes.size() * 3 / 4));
  folder_.write("in/labels/b.txt", "0 .1 .1 .1 .1\n");
  folder_.write("in/images/d.png", "<html>");
  const auto splits = tile_data(configs::load_data_config(yaml_), request_);
  for (const auto& [name, content] : files_below(request_.output)) {
    EXPECT_EQ(name.find("/b_"), std::string::npos) << name;
  }
  // a.bmp and a.jpg have one label file.
  EXPECT_EQ(splits[0].report.num_faults(), 3);
  const std::string text = tiling_text(splits);
  EXPECT_THAT(text, HasSubstr("b.jpg: unreadable image (damaged JPEG"));
  EXPECT_THAT(text, HasSubstr("d.png: unreadable image (text (HTML"));
  const auto json = nlohmann::json::parse(tiling_json(splits, request_.output));
  EXPECT_EQ(json["data"], (request_.output / "data.yaml").string());
  EXPECT_EQ(json["splits"][0]["tiles"], 17);
  EXPECT_EQ(json["splits"][0]["faults"].size(), 3u);
}

TEST_F(Tiling, AFolderThatHoldsSomethingIsRefusedAndLeftAlone) {
  folder_.write("out/mine.txt", "1");
  EXPECT_THAT(refusal(ExitCode::kRequest), HasSubstr("/out is not empty"));
  EXPECT_THAT(beside(), ElementsAre("in", "out"));
  EXPECT_EQ(files_below(request_.output).size(), 1u);
}

TEST_F(Tiling, AnEmptyFolderIsTakenWithOrWithoutASlash) {
  fs::create_directory(request_.output);
  request_.output += "/";
  tile_data(configs::load_data_config(yaml_), request_);
  EXPECT_TRUE(fs::exists(folder_.path() / "out/data.yaml"));
  EXPECT_THAT(beside(), ElementsAre("in", "out"));
}

TEST_F(Tiling, AnUnfinishedRunLeavesNoFiles) {
  std::atomic<int> tiles = 0;
  request_.stopped = [&] { return ++tiles >= 15; };
  EXPECT_THAT(refusal(ExitCode::kInterrupted), HasSubstr("interrupted"));
  EXPECT_THAT(beside(), ElementsAre("in"));

  request_.stopped = [] { return false; };
  folder_.write("in/labels/c.txt", "7 .5 .5 .2 .2\n");
  EXPECT_THAT(refusal(ExitCode::kData), HasSubstr("c.txt:1 has class 7"));
  EXPECT_THAT(beside(), ElementsAre("in"));
}

TEST_F(Tiling, BoxesThatNoTileShowsAreCountedAndASetWithoutAnyIsRefused) {
  folder_.write("in/labels/a.txt", "0 .5 .5 1 1\n0 .1 .1 .05 .05\n");
  request_.tiles.min_visible = 0.5;
  const auto splits = tile_data(configs::load_data_config(yaml_), request_);
  EXPECT_EQ(splits[0].lost_boxes, 2);  // a.jpg and a.bmp share their labels
  EXPECT_THAT(tiling_text(splits),
              HasSubstr("train: none of the tiles shows enough of 2 boxes"));

  request_.output = folder_.path() / "none";
  folder_.write("in/labels/a.txt", "0 .5 .5 1 1\n");
  EXPECT_THAT(refusal(ExitCode::kData),
              HasSubstr("has 3 images with 2 boxes, and no tile shows one"));
  EXPECT_THAT(beside(), ElementsAre("in", "out"));
}

TEST_F(Tiling, ReportsThatAlphaIsLeftOut) {
  const auto alpha_line = [&] {
    const auto splits = tile_data(configs::load_data_config(yaml_), request_);
    fs::remove_all(request_.output);
    const std::string text = tiling_text(splits);
    const auto json = nlohmann::json::parse(tiling_json(splits, ""));
    EXPECT_EQ(json["splits"][0]["images_with_alpha"].get<int>() > 0,
              text.find("alpha") != std::string::npos);
    const size_t at = text.find("train: of ");
    return at == std::string::npos ? ""
                                   : text.substr(at, text.find('\n', at) - at);
  };
  TiffForm form{.photometric = PHOTOMETRIC_RGB};
  write_tiff(folder_.path() / "in/images/e.tif", test_bands(60, 80, 4, 1),
             form);
  EXPECT_EQ(alpha_line(), "");
  form.extra = EXTRASAMPLE_ASSOCALPHA;
  write_tiff(folder_.path() / "in/images/f.tif", test_bands(60, 80, 4, 1),
             form);
  EXPECT_EQ(alpha_line(),
            "train: of 1 image the sample that the file calls alpha is left "
            "out: where it is a band of a model's, write the file without that "
            "mark (gdal_translate -co ALPHA=NO) and tile it again");
}

TEST_F(Tiling, TilesOfAMapAreMapsUnlessItIsStoredTurned) {
  const codecs::GeoTags tags = {.tie_points = {0, 0, 0, 1000, 5000, 0},
                                .pixel_scale = {2, 4, 0},
                                .transformation = {},
                                .keys = {1, 1, 0, 0},
                                .key_numbers = {},
                                .key_text = "",
                                .no_data = ""};
  fs::remove_all(folder_.path() / "in/images");
  const std::string map = codecs::encode_tiff_bytes(picture_, &tags);
  folder_.write("in/images/a.tif", map);
  const fs::path turned = folder_.write("in/images/b.tif", map);
  TIFF* const tiff = TIFFOpen(turned.c_str(), "r+");
  ASSERT_NE(tiff, nullptr);
  TIFFSetField(tiff, TIFFTAG_ORIENTATION, ORIENTATION_BOTRIGHT);
  ASSERT_EQ(TIFFRewriteDirectory(tiff), 1);
  TIFFClose(tiff);
  ASSERT_TRUE(codecs::read_geo_tags(turned).has_value());
  const auto splits = tile_data(configs::load_data_config(yaml_), request_);
  EXPECT_THAT(splits[0].report.notes,
              ElementsAre(HasSubstr("b.tif: its tiles have no coordinates, for "
                                    "its pixels are stored turned")));
  int64_t maps = 0, pictures = 0;
  for (const auto& entry :
       fs::directory_iterator(request_.output / "images/train")) {
    const bool is_map = entry.path().filename().string().starts_with("a");
    EXPECT_EQ(entry.path().extension(), is_map ? ".tif" : ".png");
    EXPECT_EQ(codecs::read_geo_tags(entry.path()).has_value(), is_map);
    ++(is_map ? maps : pictures);
  }
  EXPECT_GT(maps, 2);
  EXPECT_EQ(maps, pictures);
}

}  // namespace
}  // namespace headroom::tiles
