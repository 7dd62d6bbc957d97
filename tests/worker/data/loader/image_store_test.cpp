#include "worker/data/loader/image_store.h"

#include <gtest/gtest.h>

#include "tests/worker/data/data_files.h"
#include "worker/data/augment/letterbox.h"

namespace headroom::loader {
namespace {

class Store : public ::testing::Test {
 protected:
  Store() {
    folder_.write("images/1.bmp", encode_bmp(test_picture(32, 64, 1)));
    folder_.write("images/2.bmp", encode_bmp(test_picture(64, 64, 2)));
    folder_.write("labels/1.txt", "0 .5 .5 .2 .2\n");
    folder_.write("labels/2.txt", "0 .5 .5 .2 .2\n");
    dataset_ = indexed_images(folder_, "images");
  }
  ImageStore::Options options(int64_t cache_bytes) const {
    ImageStore::Options result;
    result.height = 64;
    result.width = 64;
    result.cache_bytes = cache_bytes;
    return result;
  }

  TemporaryFolder folder_;
  labels::Dataset dataset_;
};

TEST_F(Store, LoadsAndFits) {
  ImageStore store(dataset_, options(0));
  const augment::LoadedImage image = store.load(0, codecs::kAllRows);
  EXPECT_TRUE(same_pixels(image.pixels, test_picture(32, 64, 1)));
  EXPECT_EQ(image.source, (codecs::ImageSize{32, 64}));
  EXPECT_EQ(image.labels.size(), 1u);
  EXPECT_EQ(image.fault, "");
}

TEST_F(Store, ABrokenImageIsGrayAndNamed) {
  folder_.write("images/1.bmp", "BM broken");
  ImageStore store(dataset_, options(1 << 20));
  for (int round = 0; round < 2; ++round) {  // the second is from the cache
    const augment::LoadedImage image = store.load(0, codecs::kAllRows);
    EXPECT_NE(image.fault.find("images/1.bmp: "), std::string::npos);
    EXPECT_TRUE(image.labels.empty());
    EXPECT_EQ(image.pixels.rows, 32);
    EXPECT_EQ(image.pixels.at<cv::Vec3b>(5, 5), cv::Vec3b(114, 114, 114));
  }
}

TEST_F(Store, AnImageThatChangedItsSizeIsAFault) {
  folder_.write("images/1.bmp", encode_bmp(test_picture(40, 64, 1)));
  ImageStore store(dataset_, options(0));
  EXPECT_NE(
      store.load(0, codecs::kAllRows)
          .fault.find(
              "64 x 40 pixels, but 64 x 32 when the data set was indexed"),
      std::string::npos);
}

TEST_F(Store, CachesImagesThatFit) {
  ImageStore store(dataset_, options(64 * 64 * 3));
  const cv::Mat first =
      store.load(0, codecs::kAllRows).pixels;  // half of the cache
  const cv::Mat second = store.load(1, codecs::kAllRows).pixels;
  EXPECT_EQ(store.load(0, codecs::kAllRows).pixels.data, first.data);
  EXPECT_NE(store.load(1, codecs::kAllRows).pixels.data, second.data);
  EXPECT_TRUE(same_pixels(store.load(1, codecs::kAllRows).pixels, second));
}

TEST_F(Store, DecodesTheRequestedRowsAndFreesThem) {
  ImageStore store(dataset_, options(1 << 20));
  const cv::Mat first = store.load(1, {10, 20}).pixels;
  EXPECT_TRUE(same_pixels(first, test_picture(64, 64, 2).rowRange(10, 20)));
  EXPECT_TRUE(first.isContinuous());
  // Loading some rows caches neither the other rows nor the whole image.
  const cv::Mat whole = store.load(1, codecs::kAllRows).pixels;
  EXPECT_TRUE(same_pixels(whole, test_picture(64, 64, 2)));
  // A cached image serves any rows.
  EXPECT_EQ(store.load(1, {10, 20}).pixels.data, whole.ptr(10));
  EXPECT_EQ(store.load(1, {7, 7}).pixels.rows, 0);
}

// The image is resized as a whole, then the rows are cut out.
TEST_F(Store, RowsOfAResizedSample) {
  ImageStore::Options smaller = options(0);
  smaller.height = smaller.width = 40;
  ImageStore store(dataset_, smaller);
  EXPECT_EQ(store.loaded_size(0), (codecs::ImageSize{20, 40}));
  const cv::Mat whole = store.load(0, codecs::kAllRows).pixels;
  EXPECT_TRUE(
      same_pixels(store.load(0, {3, 11}).pixels, whole.rowRange(3, 11)));
}

// If an image is damaged at any place, every rank gets a gray image without
// labels, whichever rows it loads.
TEST_F(Store, RowsOfABrokenImageAreGrayWithoutLabels) {
  const std::string bytes = encode_bmp(test_picture(32, 64, 1));
  folder_.write("images/1.bmp", bytes.substr(0, bytes.size() - 1));
  ImageStore store(dataset_, options(0));
  for (const codecs::PixelRows rows :
       {codecs::PixelRows{0, 4}, codecs::PixelRows{28, 32}}) {
    const augment::LoadedImage image = store.load(0, rows);
    EXPECT_NE(image.fault.find("truncated BMP"), std::string::npos);
    EXPECT_TRUE(image.labels.empty());
    EXPECT_EQ(image.pixels.rows, 4);
    EXPECT_EQ(image.pixels.at<cv::Vec3b>(3, 5), cv::Vec3b(114, 114, 114));
  }
}

}  // namespace
}  // namespace headroom::loader
