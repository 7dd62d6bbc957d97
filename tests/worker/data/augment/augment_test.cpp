#include "worker/data/augment/augment.h"

#include <gtest/gtest.h>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/made_images.h"
#include "worker/data/augment/letterbox.h"

namespace headroom::augment {
namespace {

constexpr int64_t kSamples = 6;
constexpr int64_t kHeight = 64;
constexpr int64_t kWidth = 96;

class Augment : public ::testing::Test {
 protected:
  Augment() {
    load_ = [this](int64_t sample) {
      LoadedImage image;
      image.source = {static_cast<int32_t>(100 + 10 * sample), 120};
      const codecs::ImageSize size = fit_size(image.source, kHeight, kWidth);
      image.pixels = test_picture(size.height, size.width, sample);
      image.labels = labels_;
      if (sample == broken_) image.fault = "broken";
      return image;
    };
  }
  NetworkSample mosaic(int64_t sample, const configs::Hyperparameters& hyp,
                       int64_t epoch = 0, uint64_t seed = 0) const {
    MadeImages images(load_);
    return make_mosaic_sample({seed, epoch, sample}, kSamples, kHeight, kWidth,
                              {0, kHeight}, hyp, images);
  }
  static bool same(const NetworkSample& a, const NetworkSample& b) {
    return same_pixels(a.pixels, b.pixels) && a.boxes == b.boxes;
  }

  const std::vector<labels::BoxLabel> labels_{{0, 0.5f, 0.5f, 0.8f, 0.8f},
                                              {2, 0.25f, 0.25f, 0.4f, 0.4f}};
  int64_t broken_ = -1;
  LoadImage load_;
};

configs::Hyperparameters plain() {
  configs::Hyperparameters hyp;
  hyp.hsv_h = hyp.hsv_s = hyp.hsv_v = 0;
  hyp.translate = hyp.scale = hyp.fliplr = hyp.mosaic = 0;
  return hyp;
}

TEST_F(Augment, FollowsFromSeedEpochAndSample) {
  const configs::Hyperparameters hyp;
  const NetworkSample once = mosaic(3, hyp);
  EXPECT_TRUE(same(once, mosaic(3, hyp)));
  EXPECT_FALSE(same(once, mosaic(4, hyp)));
  EXPECT_FALSE(same(once, mosaic(3, hyp, 1)));
  EXPECT_FALSE(same(once, mosaic(3, hyp, 0, 1)));
}

TEST_F(Augment, SamplesHaveTheNetworksSizeAndSoundBoxes) {
  configs::Hyperparameters hyp;
  hyp.mixup = 0.5;
  hyp.mosaic = 0.7;
  hyp.degrees = 10;
  hyp.shear = 3;
  hyp.perspective = 0.0005;
  hyp.flipud = 0.5;
  int64_t boxes = 0;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      const NetworkSample made = mosaic(sample, hyp, epoch);
      ASSERT_EQ(made.pixels.rows, kHeight);
      ASSERT_EQ(made.pixels.cols, kWidth);
      ASSERT_TRUE(made.pixels.isContinuous());
      for (const labels::NormalizedBox& box : made.boxes) {
        EXPECT_GT(box.w, 0);
        EXPECT_GT(box.h, 0);
        EXPECT_GE(box.cx - box.w / 2, -1e-12);
        EXPECT_GE(box.cy - box.h / 2, -1e-12);
        EXPECT_LE(box.cx + box.w / 2, 1 + 1e-12);
        EXPECT_LE(box.cy + box.h / 2, 1 + 1e-12);
      }
      boxes += static_cast<int64_t>(made.boxes.size());
    }
  }
  EXPECT_GT(boxes, 40 * kSamples);
}

TEST_F(Augment, WithoutAugmentationItIsTheLetterbox) {
  const NetworkSample made = mosaic(2, plain());
  const LoadedImage image = load_(2);
  const cv::Mat expected = letterbox(
      image.pixels, letterbox_geometry({image.pixels.rows, image.pixels.cols},
                                       kHeight, kWidth, {}));
  EXPECT_TRUE(same_pixels(made.pixels, expected));
  EXPECT_EQ(made.boxes.size(), 2u);
  MadeImages images(load_);
  EXPECT_TRUE(same(made, make_rect_sample({0, 0, 2}, kHeight, kWidth,
                                          {0, kHeight}, plain(), images)));
}

TEST_F(Augment, ValidationDoesNotEnlarge) {
  MadeImages small([&](int64_t) {
    LoadedImage image;
    image.source = {20, 30};
    image.pixels = test_picture(40, 60, 1);
    image.labels = labels_;
    return image;
  });
  const NetworkSample made = make_validation_sample(0, 96, 96, {0, 96}, small);
  EXPECT_EQ(made.source, (codecs::ImageSize{20, 30}));
  EXPECT_EQ(made.ratio, 2);  // the loader enlarges the image
  EXPECT_EQ(made.pad_x, 18);
  EXPECT_EQ(made.pad_y, 28);
  EXPECT_TRUE(same_pixels(made.pixels(cv::Rect(18, 28, 60, 40)).clone(),
                          test_picture(40, 60, 1)));
  // The box is mapped from the network's image back to the source.
  const labels::NormalizedBox& box = made.boxes.at(0);
  EXPECT_NEAR((box.cx * 96 - made.pad_x) / made.ratio, 0.5 * 30, 1e-5);
  EXPECT_NEAR((box.cy * 96 - made.pad_y) / made.ratio, 0.5 * 20, 1e-5);
  EXPECT_NEAR(box.w * 96 / made.ratio, 0.8 * 30, 1e-5);
}

TEST_F(Augment, ProbabilitiesAreKept) {
  configs::Hyperparameters hyp = plain();
  hyp.fliplr = 0.25;
  const NetworkSample upright = mosaic(0, plain());
  int flipped = 0;
  constexpr int kEpochs = 400;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const NetworkSample made = mosaic(0, hyp, epoch);
    flipped += same(made, upright) ? 0 : 1;
  }
  EXPECT_NEAR(flipped, kEpochs / 4, 45);  // five standard deviations
}

TEST_F(Augment, SharedPixelsAreNotWrittenTo) {
  const cv::Mat shared = test_picture(64, 96, 1);
  const cv::Mat before = shared.clone();
  MadeImages images([&](int64_t) {
    LoadedImage image;
    image.source = {64, 96};
    image.pixels = shared;
    return image;
  });
  configs::Hyperparameters hyp;
  hyp.fliplr = 1;
  hyp.mosaic = 0;
  hyp.translate = hyp.scale = 0;
  const NetworkSample made = make_mosaic_sample({0, 0, 0}, 1, kHeight, kWidth,
                                                {0, kHeight}, hyp, images);
  EXPECT_FALSE(same_pixels(made.pixels, before));
  EXPECT_TRUE(same_pixels(shared, before));
}

TEST_F(Augment, FaultsAreForwarded) {
  broken_ = 1;
  EXPECT_EQ(mosaic(1, plain()).faults, std::vector<std::string>{"broken"});
  configs::Hyperparameters hyp;
  int64_t named = 0;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    named += static_cast<int64_t>(mosaic(1, hyp, epoch).faults.size());
  }
  EXPECT_GE(named, 20);
}

}  // namespace
}  // namespace headroom::augment
