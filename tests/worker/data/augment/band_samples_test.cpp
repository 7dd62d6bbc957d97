// Augmentation changes all bands alike: if all bands of an image are equal,
// they are equal afterwards too, and each equals the augmented gray image.
// Changes of colour are switched off.
#include <gtest/gtest.h>

#include <opencv2/core.hpp>
#include <vector>

#include "tests/worker/data/augment/sample_fixture.h"
#include "tests/worker/data/encoders.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/loader/image_store.h"
#include "worker/data/tiles/random_crop.h"

namespace headroom::augment {
namespace {

constexpr int kBands = 5;

cv::Mat repeated(const cv::Mat& band, int bands) {
  const std::vector<cv::Mat> all(static_cast<size_t>(bands), band);
  cv::Mat result;
  cv::merge(all, result);
  return result;
}

cv::Mat band_of(const cv::Mat& pixels, int band) {
  cv::Mat result;
  cv::extractChannel(pixels, result, band);
  return result;
}

class BandSamples : public SampleFixture {
 protected:
  // `bands` times the same gray picture.
  static Draw gray_in(int bands) {
    return [bands](codecs::ImageSize size, int64_t sample) {
      const auto seed = static_cast<uint64_t>(sample);
      return repeated(band_of(test_picture(size.height, size.width, seed), 0),
                      bands);
    };
  }
  NetworkSample made(int bands, int64_t sample,
                     const configs::Hyperparameters& hyp) const {
    return with_pixels(planned(gray_in(bands), CV_8UC(bands), sample, hyp));
  }

  static configs::Hyperparameters with_blurs() {
    configs::Hyperparameters hyp = everything();
    hyp.blur = hyp.median_blur = 0.5;
    return hyp;
  }
};

TEST_F(BandSamples, EveryBandMovesAsGrayDoes) {
  const configs::Hyperparameters hyp = with_blurs();
  for (int64_t sample = 0; sample < 60; ++sample) {
    const NetworkSample gray = made(codecs::kColours, sample, hyp);
    for (const int bands : {2, kBands}) {
      const NetworkSample one = made(bands, sample, hyp);
      ASSERT_EQ(one.pixels.channels(), bands);
      EXPECT_EQ(one.boxes, gray.boxes);
      for (int band = 0; band < bands; ++band) {
        EXPECT_TRUE(
            same_pixels(band_of(one.pixels, band), band_of(gray.pixels, 0)))
            << "sample " << sample << ", band " << band;
      }
    }
  }
}

TEST_F(BandSamples, ColoursAreLeftOutAndTheirDrawsMade) {
  configs::Hyperparameters hyp = everything();
  hyp.hsv_h = hyp.hsv_s = hyp.hsv_v = 0.7;
  hyp.gray = hyp.clahe = 0;
  for (int64_t sample = 0; sample < 20; ++sample) {
    configs::Hyperparameters without = hyp;
    without.hsv_h = without.hsv_s = without.hsv_v = 0;
    const NetworkSample with = made(kBands, sample, hyp);
    EXPECT_EQ(with.boxes, made(kBands, sample, without).boxes);
    EXPECT_TRUE(same_pixels(with.pixels, made(kBands, sample, without).pixels));
    hyp.gray = hyp.clahe = 1;
    EXPECT_EQ(made(kBands, sample, hyp).pixels.channels(), kBands);
    hyp.gray = hyp.clahe = 0;
  }
}

TEST_F(BandSamples, RowsOfASampleAreThoseOfTheWhole) {
  expect_rows_of_the_whole(gray_in(kBands), CV_8UC(kBands), with_blurs());
}

TEST(BandFiles, AreLoadedResizedAndCut) {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "images");
  const cv::Mat small = test_bands(30, 40, kBands, 1);
  const cv::Mat large = test_bands(100, 150, kBands, 2);
  write_tiff(folder.path() / "images/1.tif", small);
  write_tiff(folder.path() / "images/2.tif", large);
  folder.write("images/3.bmp", encode_bmp(test_picture(64, 64, 3)));
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n");
  labels::IndexOptions index;
  index.limits.bands = kBands;
  const labels::Dataset dataset = indexed_images(folder, "images", index);
  ASSERT_EQ(dataset.size(), 2);
  loader::ImageStore::Options options;
  options.height = options.width = 64;
  options.limits.bands = kBands;
  options.training = false;  // images are shrunk by area averages
  loader::ImageStore store(dataset, options);
  for (int64_t sample = 0; sample < 2; ++sample) {
    const LoadedImage image = store.load(sample, codecs::kAllRows);
    EXPECT_EQ(image.fault, "");
    ASSERT_EQ(image.pixels.channels(), kBands);
    const cv::Mat source = sample == 0 ? small : large;
    for (int band = 0; band < kBands; ++band) {
      EXPECT_TRUE(same_pixels(
          band_of(image.pixels, band),
          resize_loaded(band_of(source, band),
                        {image.pixels.rows, image.pixels.cols}, false)));
    }
  }
  codecs::ImageLimits limits;
  limits.bands = kBands;
  tiles::RandomCrops crops(dataset, store, {0, 0, 1}, 64, 64, limits);
  const tiles::TileRect window = crops.window_of(1);
  const cv::Mat cut = crops.load(1, codecs::kAllRows).pixels;
  EXPECT_TRUE(
      same_pixels(cut, large(cv::Rect(static_cast<int>(window.x),
                                      static_cast<int>(window.y), 64, 64))));
  // An image that becomes unreadable is gray in all bands.
  folder.write("images/1.tif", "no image");
  const LoadedImage broken = store.load(0, codecs::kAllRows);
  EXPECT_NE(broken.fault, "");
  EXPECT_EQ(broken.pixels.channels(), kBands);
  EXPECT_EQ(cv::norm(broken.pixels.reshape(1),
                     cv::Mat(broken.pixels.rows, broken.pixels.cols * kBands,
                             CV_8U, cv::Scalar(kernels::kFillGray)),
                     cv::NORM_INF),
            0);
}

}  // namespace
}  // namespace headroom::augment
