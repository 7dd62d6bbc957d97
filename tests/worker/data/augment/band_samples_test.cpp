// Augmentation changes all bands alike: if every band is the same picture, it
// stays so, and equals that of gray; changes of colour are left out.
#include <gtest/gtest.h>

#include <opencv2/core.hpp>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "tests/worker/data/made_images.h"
#include "worker/data/augment/augment.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/loader/image_store.h"
#include "worker/data/tiles/random_crop.h"

namespace headroom::augment {
namespace {

constexpr int64_t kSamples = 6, kHeight = 64, kWidth = 96;
constexpr int kBands = 5;

// Images with `bands` times the same gray picture.
class SameInAll : public MadeImages {
 public:
  SameInAll(LoadImage make, int bands)
      : MadeImages(std::move(make)), bands_(bands) {}
  int type() const override { return CV_8UC(bands_); }

 private:
  int bands_;
};

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

class BandSamples : public testing::Test {
 protected:
  LoadImage load(int bands) const {
    return [this, bands](int64_t sample) {
      LoadedImage image;
      image.source = {static_cast<int32_t>(100 + 10 * sample), 120};
      const codecs::ImageSize size = fit_size(image.source, kHeight, kWidth);
      image.pixels =
          repeated(band_of(test_picture(size.height, size.width,
                                        static_cast<uint64_t>(sample)),
                           0),
                   bands);
      image.labels = labels_;
      image.outlines = {ends_, 0, points_.data()};
      return image;
    };
  }
  NetworkSample made(int bands, int64_t sample,
                     const configs::Hyperparameters& hyp,
                     codecs::PixelRows rows = {0, kHeight}) const {
    SameInAll images(load(bands), bands);
    return make_mosaic_sample({1, 0, sample}, kSamples, kHeight, kWidth, rows,
                              hyp, images);
  }

  const std::vector<labels::BoxLabel> labels_{{0, 0.3f, 0.3f, 0.2f, 0.2f}};
  const std::vector<uint64_t> ends_{3};
  const std::vector<labels::IndexedPoint> points_{
      {0.2f, 0.2f}, {0.4f, 0.2f}, {0.3f, 0.4f}};
};

configs::Hyperparameters everything() {
  configs::Hyperparameters hyp;
  hyp.degrees = 10;
  hyp.shear = 3;
  hyp.perspective = 0.0005;
  hyp.flipud = hyp.mixup = hyp.blur = hyp.median_blur = 0.5;
  hyp.mosaic = 0.8;
  hyp.mosaic9 = 0.3;
  hyp.copy_paste = 0.6;
  hyp.hsv_h = hyp.hsv_s = hyp.hsv_v = 0;
  return hyp;
}

TEST_F(BandSamples, EveryBandMovesAsGrayDoes) {
  const configs::Hyperparameters hyp = everything();
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
  hyp.blur = hyp.median_blur = 0;
  hyp.hsv_h = hyp.hsv_s = hyp.hsv_v = 0.7;
  hyp.gray = hyp.clahe = 0;
  for (int64_t sample = 0; sample < 20; ++sample) {
    configs::Hyperparameters without = hyp;
    without.hsv_h = without.hsv_s = without.hsv_v = 0;
    const NetworkSample with = made(kBands, sample, hyp);
    EXPECT_EQ(with.boxes, made(kBands, sample, without).boxes);
    EXPECT_EQ(
        cv::norm(with.pixels.reshape(1),
                 made(kBands, sample, without).pixels.reshape(1), cv::NORM_INF),
        0);
    hyp.gray = hyp.clahe = 1;
    EXPECT_EQ(made(kBands, sample, hyp).pixels.channels(), kBands);
    hyp.gray = hyp.clahe = 0;
  }
}

TEST_F(BandSamples, RowsOfASampleAreThoseOfTheWhole) {
  configs::Hyperparameters hyp = everything();
  for (int64_t sample = 0; sample < 20; ++sample) {
    const cv::Mat whole = made(kBands, sample, hyp).pixels;
    for (const codecs::PixelRows rows :
         {codecs::PixelRows{0, 16}, codecs::PixelRows{48, 64}}) {
      const cv::Mat part = made(kBands, sample, hyp, rows).pixels;
      EXPECT_EQ(cv::norm(part.reshape(1),
                         whole
                             .rowRange(static_cast<int>(rows.begin),
                                       static_cast<int>(rows.end))
                             .clone()
                             .reshape(1),
                         cv::NORM_INF),
                0)
          << sample;
    }
  }
}

TEST(BandFiles, AreLoadedResizedAndCut) {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "images");
  const cv::Mat small = test_bands(30, 40, kBands, 1);
  const cv::Mat large = test_bands(100, 150, kBands, 2);
  write_bands(folder.path() / "images/1.tif", small);
  write_bands(folder.path() / "images/2.tif", large);
  folder.write("images/3.bmp", encode_bmp(test_picture(64, 64, 3)));
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n");
  labels::IndexOptions index;
  index.limits.bands = kBands;
  const labels::Dataset dataset =
      labels::index_dataset(data_config(folder, folder.path() / "images"),
                            labels::Split::kTrain, index)
          .dataset;
  ASSERT_EQ(dataset.size(), 2);
  loader::ImageStore::Options options;
  options.height = options.width = 64;
  options.limits.bands = kBands;
  options.training = false;  // by area averages where it shrinks
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
  EXPECT_EQ(cv::norm(cut.reshape(1),
                     large(cv::Rect(static_cast<int>(window.x),
                                    static_cast<int>(window.y), 64, 64))
                         .clone()
                         .reshape(1),
                     cv::NORM_INF),
            0);
  // One that becomes unreadable is gray in all bands.
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
