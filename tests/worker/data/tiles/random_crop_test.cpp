#include "worker/data/tiles/random_crop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/worker/data/data_files.h"
#include "worker/data/loader/image_store.h"

namespace headroom::tiles {
namespace {

constexpr int kHeight = 50, kWidth = 70, kSide = 32;

class RandomCropTest : public ::testing::Test {
 protected:
  RandomCropTest() {
    folder_.write("images/1.bmp", encode_bmp(large_));
    folder_.write("images/2.bmp", encode_bmp(test_picture(20, kSide, 2)));
    folder_.write("images/3.bmp", encode_bmp(test_picture(20, kWidth, 3)));
    folder_.write("labels/1.txt", "0 .5 .5 .2 .2\n1 .1 .1 .2 .2\n");
    folder_.write("labels/2.txt", "0 .5 .5 .2 .2\n");
    dataset_ = indexed_images(folder_, "images");
    loader::ImageStore::Options options;
    options.height = options.width = kSide;
    store_ = std::make_unique<loader::ImageStore>(dataset_, options);
  }
  RandomCrops crops(int64_t made, int64_t epoch = 0, uint64_t seed = 0) {
    return {dataset_, *store_, {seed, epoch, made}, kSide, kSide};
  }
  cv::Mat part(const TileRect& window) const {
    return large_(cv::Rect(static_cast<int>(window.x),
                           static_cast<int>(window.y),
                           static_cast<int>(window.width),
                           static_cast<int>(window.height)))
        .clone();
  }

  TemporaryFolder folder_;
  const cv::Mat large_ = test_picture(kHeight, kWidth, 1);
  labels::Dataset dataset_;
  std::unique_ptr<loader::ImageStore> store_;
};

TEST_F(RandomCropTest, ShowsTheImagesOwnPixels) {
  std::set<int64_t> rows, columns;
  for (int64_t made = 0; made < 2000; ++made) {
    RandomCrops one = crops(made);
    const TileRect window = one.window_of(0);
    ASSERT_EQ(window.height, kSide);
    ASSERT_EQ(window.width, kSide);
    rows.insert(window.y);
    columns.insert(window.x);
    if (made % 100 != 0) continue;
    const augment::LoadedImage image = one.load(0, codecs::kAllRows);
    EXPECT_TRUE(same_pixels(image.pixels, part(window)));
    EXPECT_EQ(one.loaded_size(0), (codecs::ImageSize{kSide, kSide}));
    EXPECT_TRUE(same_pixels(one.load(0, {5, 9}).pixels.clone(),
                            image.pixels.rowRange(5, 9).clone()));
  }
  // Every position occurs, including the last.
  EXPECT_EQ(rows.size(), kHeight - kSide + 1U);
  EXPECT_EQ(columns.size(), kWidth - kSide + 1U);
  EXPECT_EQ(*rows.rbegin(), kHeight - kSide);
}

TEST_F(RandomCropTest, PlacesFollowFromSeedEpochAndSamples) {
  EXPECT_EQ(crops(7).window_of(0), crops(7).window_of(0));
  std::set<std::pair<int64_t, int64_t>> places;
  for (const auto& window :
       {crops(7).window_of(0), crops(8).window_of(0), crops(7, 1).window_of(0),
        crops(7, 0, 1).window_of(0)}) {
    places.insert({window.y, window.x});
  }
  EXPECT_EQ(places.size(), 4U);
  EXPECT_NE(crops(7).window_of(0).x, crops(7).window_of(2).x);
}

// As in `headroom tile`, a box is clipped to the window, and kept if at least
// 0.3 of its area is visible.
TEST_F(RandomCropTest, BoxesAreThoseThatAreSeen) {
  int seen = 0, clipped = 0, gone = 0;
  for (int64_t made = 0; made < 200; ++made) {
    RandomCrops one = crops(made);
    const TileRect window = one.window_of(0);
    const augment::LoadedImage image = one.load(0, {0, 0});
    // The first box covers columns 28 to 42 and rows 20 to 30.
    const double x1 = std::max<double>(28, static_cast<double>(window.x));
    const double x2 = std::min<double>(42, static_cast<double>(window.x) + 32);
    const double y1 = std::max<double>(20, static_cast<double>(window.y));
    const double y2 = std::min<double>(30, static_cast<double>(window.y) + 32);
    const double area = std::max(0., x2 - x1) * std::max(0., y2 - y1);
    const auto box = std::find_if(
        image.labels.begin(), image.labels.end(),
        [](const labels::BoxLabel& label) { return label.class_index == 0; });
    // At the limit of the rule, float32 labels may be kept or dropped.
    if (std::abs(area - 0.3 * 140) < 0.01) continue;
    ASSERT_EQ(box != image.labels.end(), area > 0.3 * 140) << made;
    if (box == image.labels.end()) {
      ++gone;
      continue;
    }
    ++(area > 139.9 ? seen : clipped);
    EXPECT_NEAR(box->cx, ((x1 + x2) / 2 - static_cast<double>(window.x)) / 32,
                1e-5);
    EXPECT_NEAR(box->h, (y2 - y1) / 32, 1e-5);
  }
  EXPECT_GT(seen, 0);
  EXPECT_GT(clipped, 0);
  EXPECT_GT(seen + clipped + gone, 190);
}

TEST_F(RandomCropTest, SmallImagesAreNotCropped) {
  RandomCrops one = crops(0);
  EXPECT_EQ(one.loaded_size(1), store_->loaded_size(1));
  EXPECT_TRUE(same_pixels(one.load(1, codecs::kAllRows).pixels,
                          store_->load(1, codecs::kAllRows).pixels));
  // An image that is larger in one direction only is visible completely in the
  // other direction.
  EXPECT_EQ(one.loaded_size(2), (codecs::ImageSize{20, kSide}));
}

TEST_F(RandomCropTest, ABrokenImageIsGrayAndNamed) {
  folder_.write("images/1.bmp", "BM broken");
  const augment::LoadedImage image = crops(0).load(0, codecs::kAllRows);
  EXPECT_NE(image.fault.find("images/1.bmp: "), std::string::npos);
  EXPECT_TRUE(image.labels.empty());
  EXPECT_EQ(image.pixels.at<cv::Vec3b>(5, 5), cv::Vec3b(114, 114, 114));
}

}  // namespace
}  // namespace headroom::tiles
