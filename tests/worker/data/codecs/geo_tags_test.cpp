#include "worker/data/codecs/geo_tags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/data_files.h"
#include "worker/data/codecs/image.h"
#include "worker/data/codecs/image_writer.h"

namespace headroom::codecs {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

GeoTags test_tags() {
  return {.tie_points = {3, 4, 0, 500'000, 5'400'000, 0},
          .pixel_scale = {0.1, 0.2, 0},
          .transformation = {},
          .keys = {1, 1, 0, 2, 1024, 0, 1, 1, 3072, 0, 1, 32633},
          .key_numbers = {298.25},
          .key_text = "WGS 84 / UTM zone 33N|",
          .no_data = "0"};
}

TEST(GeoTags, AreWrittenAsTheyAreRead) {
  const TemporaryFolder folder;
  const cv::Mat picture = test_picture(20, 30, 1);
  const GeoTags tags = test_tags();
  const fs::path file =
      folder.write("map.tif", encode_tiff_bytes(picture, &tags));
  const auto read = read_geo_tags(file);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->tie_points, tags.tie_points);
  EXPECT_EQ(read->pixel_scale, tags.pixel_scale);
  EXPECT_EQ(read->keys, tags.keys);
  EXPECT_EQ(read->key_numbers, tags.key_numbers);
  EXPECT_EQ(read->key_text, tags.key_text);
  EXPECT_EQ(read->no_data, tags.no_data);
  EXPECT_TRUE(same_pixels(decode_image(file).pixels, picture));
}

TEST(GeoTags, APartHasThemMoved) {
  GeoTags tags = test_tags();
  EXPECT_THAT(tags.moved(10, 20).tie_points,
              ElementsAre(-17, -6, 0, 500'000, 5'400'000, 0));
  EXPECT_EQ(tags.moved(10, 20).keys, tags.keys);
  tags.tie_points.clear();
  tags.transformation = {2, 1, 0, 100, 3, -4, 0, 200, 0, 0, 0, 0, 0, 0, 0, 1};
  EXPECT_THAT(tags.moved(10, 20).transformation,
              ElementsAre(2, 1, 0, 150, 3, -4, 0, 220, 0, 0, 0, 0, 0, 0, 0, 1));
}

TEST(GeoTags, APictureThatIsNoMapHasNone) {
  const TemporaryFolder folder;
  const cv::Mat picture = test_picture(20, 30, 1);
  EXPECT_FALSE(read_geo_tags(folder.write("a.bmp", encode_bmp(picture))));
  EXPECT_FALSE(
      read_geo_tags(folder.write("a.tif", encode_tiff_bytes(picture))));
  EXPECT_FALSE(read_geo_tags(folder.write("b.tif", "II*")));
  EXPECT_FALSE(read_geo_tags(folder.path() / "c.tif"));
  GeoTags keys_alone;
  keys_alone.keys = test_tags().keys;
  EXPECT_FALSE(read_geo_tags(
      folder.write("d.tif", encode_tiff_bytes(picture, &keys_alone))));
}

}  // namespace
}  // namespace headroom::codecs
