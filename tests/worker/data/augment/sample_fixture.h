// Samples of small pictures with one outlined box each, for pictures of several
// types.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/made_images.h"
#include "worker/data/augment/augment.h"
#include "worker/data/augment/letterbox.h"

namespace headroom::augment {

class SampleFixture : public ::testing::Test {
 protected:
  static constexpr int64_t kSamples = 6, kHeight = 64, kWidth = 96;

  // Draws a sample's picture, of the size that it has when it is loaded.
  using Draw = std::function<cv::Mat(codecs::ImageSize, int64_t sample)>;

  PlannedSample planned(const Draw& draw, int type, int64_t sample,
                        const configs::Hyperparameters& hyp,
                        codecs::PixelRows rows = {0, kHeight}) const {
    const auto load = [&](int64_t number) {
      LoadedImage image;
      image.source = {static_cast<int32_t>(100 + 10 * number), 120};
      image.pixels = draw(fit_size(image.source, kHeight, kWidth), number);
      image.labels = labels_;
      image.outlines = {ends_, 0, points_.data()};
      return image;
    };
    MadeImages images(load, type);
    return plan_mosaic_sample({1, 0, sample}, kSamples, kHeight, kWidth, rows,
                              hyp, images);
  }

  // All augmentations except changes of colour and blurs.
  static configs::Hyperparameters everything() {
    configs::Hyperparameters hyp;
    hyp.degrees = 10;
    hyp.shear = 3;
    hyp.perspective = 0.0005;
    hyp.flipud = hyp.mixup = 0.5;
    hyp.mosaic = 0.8;
    hyp.mosaic9 = 0.3;
    hyp.copy_paste = 0.6;
    hyp.hsv_h = hyp.hsv_s = hyp.hsv_v = 0;
    return hyp;
  }

  void expect_rows_of_the_whole(const Draw& draw, int type,
                                const configs::Hyperparameters& hyp) const {
    for (int64_t sample = 0; sample < 20; ++sample) {
      const cv::Mat whole =
          with_pixels(planned(draw, type, sample, hyp)).pixels;
      for (const codecs::PixelRows rows :
           {codecs::PixelRows{0, 16}, codecs::PixelRows{48, 64}}) {
        EXPECT_TRUE(same_pixels(
            with_pixels(planned(draw, type, sample, hyp, rows)).pixels,
            rows_of(whole, rows)))
            << sample;
      }
    }
  }

 private:
  const std::vector<labels::BoxLabel> labels_{{0, 0.3f, 0.3f, 0.2f, 0.2f}};
  const std::vector<uint64_t> ends_{3};
  const std::vector<labels::IndexedPoint> points_{
      {0.2f, 0.2f}, {0.4f, 0.2f}, {0.3f, 0.4f}};
};

}  // namespace headroom::augment
