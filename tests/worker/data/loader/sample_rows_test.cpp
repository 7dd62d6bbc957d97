// If only some rows of a sample are made, they equal byte for byte those rows
// of the whole sample, and the boxes are the same.
#include <gtest/gtest.h>

#include <opencv2/imgproc.hpp>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/made_images.h"
#include "worker/data/augment/affine.h"
#include "worker/data/augment/augment.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/augment/pixel_changes.h"

namespace headroom::loader {
namespace {

codecs::PixelRows random_rows(sampling::RandomStream& draws, int64_t height) {
  const int64_t begin = draws.below(height);
  return {begin, begin + 1 + draws.below(height - begin)};
}

// Warps the letterboxed picture with OpenCV itself, for comparison.
cv::Mat warped_by_opencv(const cv::Mat& picture, const augment::Warp& warp) {
  cv::Mat result;
  if (warp.matrix(2, 0) == 0 && warp.matrix(2, 1) == 0) {
    cv::warpAffine(picture, result, warp.matrix.get_minor<2, 3>(0, 0),
                   picture.size(), cv::INTER_LINEAR, cv::BORDER_CONSTANT,
                   cv::Scalar::all(kernels::kFillGray));
  } else {
    cv::warpPerspective(picture, result, warp.matrix, picture.size(),
                        cv::INTER_LINEAR, cv::BORDER_CONSTANT,
                        cv::Scalar::all(kernels::kFillGray));
  }
  return result;
}

void expect_rows_of_warps(const configs::Hyperparameters& hyp, int times) {
  sampling::RandomStream draws(5, 0, 0,
                               sampling::RandomPurpose::kSyntheticImage);
  int64_t touched = 0, all = 0;
  for (int i = 0; i < times; ++i) {
    const auto height = static_cast<int32_t>(20 + draws.below(120));
    const auto width = static_cast<int32_t>(20 + draws.below(200));
    const auto pad_y = static_cast<int32_t>(draws.below(30));
    const auto pad_x = static_cast<int32_t>(draws.below(30));
    const codecs::ImageSize target{height + pad_y, width + pad_x};
    const cv::Mat pixels = test_picture(height, width, i);
    augment::PlacedPicture picture;
    picture.size = {height, width};
    picture.top = static_cast<int>(draws.below(pad_y + 1));
    picture.left = static_cast<int>(draws.below(pad_x + 1));
    picture.held = {0, height};
    const augment::Warp warp = augment::draw_warp(hyp, target, target, draws);
    const cv::Mat whole = warped_by_opencv(
        augment::place_tiles({augment::placed_tile(pixels, picture)},
                             target.width, {0, target.height}, CV_8UC3),
        warp);
    EXPECT_TRUE(
        same_pixels(augment::warp_tiles({augment::placed_tile(pixels, picture)},
                                        warp, target.width, {0, target.height}),
                    whole))
        << i;
    for (int round = 0; round < 4; ++round) {
      const codecs::PixelRows rows = random_rows(draws, target.height);
      picture.held = augment::rows_to_warp(warp, target.width, rows, picture);
      touched += picture.held.size();
      all += height;
      const augment::PlacedTile tile =
          augment::placed_tile(rows_of(pixels, picture.held).clone(), picture);
      EXPECT_TRUE(
          same_pixels(augment::warp_tiles({tile}, warp, target.width, rows),
                      rows_of(whole, rows)))
          << i << " rows " << rows.begin << " to " << rows.end;
      picture.held = {0, height};
    }
  }
  EXPECT_LT(touched, all * 9 / 10);
}

TEST(SampleRows, WarpsOfTheDefaultHyperparameters) {
  expect_rows_of_warps({}, 200);
}

TEST(SampleRows, WarpsThatTurnAndShear) {
  configs::Hyperparameters hyp;
  hyp.degrees = 30;
  hyp.shear = 10;
  hyp.scale = 0.9;
  hyp.translate = 0.5;
  expect_rows_of_warps(hyp, 200);
}

TEST(SampleRows, WarpsWithPerspective) {
  configs::Hyperparameters hyp;
  hyp.degrees = 10;
  hyp.perspective = 0.001;
  expect_rows_of_warps(hyp, 200);
}

// Extreme warps: the first shows nothing of the picture, and the second shows
// the same point of the picture everywhere.
TEST(SampleRows, WarpsThatShowNothing) {
  augment::Warp away;
  away.matrix(1, 2) = 1e7;
  augment::Warp flat;
  flat.matrix(0, 0) = flat.matrix(1, 1) = 0;
  for (const augment::Warp& warp : {away, flat}) {
    const cv::Mat pixels = test_picture(40, 50, 1);
    augment::PlacedPicture picture;
    picture.size = {40, 50};
    picture.held = {0, 40};
    const cv::Mat whole = warped_by_opencv(pixels, warp);
    const codecs::PixelRows rows{10, 30};
    picture.held = augment::rows_to_warp(warp, 50, rows, picture);
    EXPECT_LE(picture.held.size(), 2);
    EXPECT_TRUE(same_pixels(
        augment::warp_tiles(
            {augment::placed_tile(rows_of(pixels, picture.held), picture)},
            warp, 50, rows),
        rows_of(whole, rows)));
  }
}

TEST(SampleRows, ColoursOfEachRowAreItsOwn) {
  const cv::Mat picture = test_picture(53, 47, 3);
  const augment::HsvGains gains{1.01, 0.6, 1.3};
  cv::Mat whole = picture.clone();
  augment::jitter_hsv(whole, gains);
  for (int begin = 0; begin < 50; begin += 7) {
    cv::Mat part = picture.rowRange(begin, 53).clone();
    augment::jitter_hsv(part, gains);
    EXPECT_TRUE(same_pixels(part, whole.rowRange(begin, 53)));
  }
}

class SampleRowsOf : public ::testing::Test {
 protected:
  static constexpr int64_t kHeight = 96;
  static constexpr int64_t kWidth = 128;
  static constexpr int64_t kSamples = 6;

  // The images have several shapes: some fill the network's image, some are
  // padded, and some have to be resized by the letterbox.
  MadeImages images_{[this](int64_t sample) {
    static const std::vector<codecs::ImageSize> sizes{
        {96, 128}, {64, 128}, {96, 70}, {48, 64}, {95, 128}, {31, 128}};
    augment::LoadedImage image;
    image.source = sizes[static_cast<size_t>(sample)];
    image.pixels =
        test_picture(image.source.height, image.source.width, sample);
    image.labels = labels_;
    return image;
  }};
  const std::vector<labels::BoxLabel> labels_{{0, 0.5f, 0.5f, 0.8f, 0.8f},
                                              {2, 0.25f, 0.25f, 0.4f, 0.4f}};

  template <typename Make>
  void expect_rows(const Make& make) {
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      for (int64_t epoch = 0; epoch < 12; ++epoch) {
        const augment::SampleId id{1, epoch, sample};
        const augment::NetworkSample whole =
            make(id, codecs::PixelRows{0, kHeight});
        ASSERT_EQ(whole.pixels.rows, kHeight);
        for (const codecs::PixelRows rows :
             {codecs::PixelRows{0, 32}, codecs::PixelRows{32, 64},
              codecs::PixelRows{64, 96}, codecs::PixelRows{5, 6}}) {
          const augment::NetworkSample part = make(id, rows);
          EXPECT_TRUE(same_pixels(part.pixels, rows_of(whole.pixels, rows)))
              << "sample " << sample << " epoch " << epoch << " rows "
              << rows.begin;
          EXPECT_EQ(part.boxes, whole.boxes);
          EXPECT_EQ(part.source, whole.source);
          EXPECT_EQ(part.ratio, whole.ratio);
          EXPECT_EQ(part.pad_x, whole.pad_x);
          EXPECT_EQ(part.pad_y, whole.pad_y);
        }
      }
    }
  }

  void expect_rows_of_rect(const configs::Hyperparameters& hyp) {
    expect_rows([&](const augment::SampleId& id, codecs::PixelRows rows) {
      return augment::make_rect_sample(id, kHeight, kWidth, rows, hyp, images_);
    });
  }
  void expect_rows_of_mosaics(const configs::Hyperparameters& hyp) {
    expect_rows([&](const augment::SampleId& id, codecs::PixelRows rows) {
      return augment::make_mosaic_sample(id, kSamples, kHeight, kWidth, rows,
                                         hyp, images_);
    });
  }

  // Hyper-parameters with more augmentations than the defaults.
  static configs::Hyperparameters augmented() {
    configs::Hyperparameters hyp;
    hyp.degrees = 10;
    hyp.shear = 3;
    hyp.flipud = 0.5;
    hyp.mixup = 0.5;
    hyp.mosaic = 0.7;
    return hyp;
  }
};

TEST_F(SampleRowsOf, RectTraining) {
  for (const double perspective : {0.0, 0.0005}) {
    configs::Hyperparameters hyp = augmented();
    hyp.perspective = perspective;
    expect_rows_of_rect(hyp);
  }
}

// Some changes read neighbouring pixels or the whole picture. Rows that are
// made alone must still equal those of the whole sample.
TEST_F(SampleRowsOf, PixelsChangedByThoseAroundThem) {
  configs::Hyperparameters hyp = augmented();
  hyp.blur = hyp.median_blur = hyp.gray = hyp.clahe = 0.4;
  expect_rows_of_rect(hyp);
  expect_rows_of_mosaics(hyp);
}

TEST_F(SampleRowsOf, MosaicsOfNine) {
  configs::Hyperparameters hyp = augmented();
  hyp.mosaic9 = 0.7;
  expect_rows_of_mosaics(hyp);
}

TEST_F(SampleRowsOf, RectTrainingThatOnlyFlips) {
  configs::Hyperparameters hyp;
  hyp.scale = hyp.translate = 0;
  hyp.flipud = 0.5;
  expect_rows_of_rect(hyp);
}

TEST_F(SampleRowsOf, MosaicTraining) { expect_rows_of_mosaics(augmented()); }

TEST_F(SampleRowsOf, Validation) {
  expect_rows([&](const augment::SampleId& id, codecs::PixelRows rows) {
    return augment::make_validation_sample(id.sample, kHeight, kWidth, rows,
                                           images_);
  });
}

TEST_F(SampleRowsOf, NoMoreRowsAreLoadedThanAreUsed) {
  augment::make_validation_sample(0, kHeight, kWidth, {32, 64}, images_);
  EXPECT_EQ(images_.rows_loaded(), 32);
  augment::make_validation_sample(1, kHeight, kWidth, {0, 32},
                                  images_);  // the other 16 are padding
  EXPECT_EQ(images_.rows_loaded(), 32 + 16);
  configs::Hyperparameters hyp;
  hyp.scale = hyp.translate = 0;
  augment::make_rect_sample({0, 0, 0}, kHeight, kWidth, {0, 10}, hyp, images_);
  EXPECT_EQ(images_.rows_loaded(), 32 + 16 + 10);
}

}  // namespace
}  // namespace headroom::loader
