// Samples of every kind that augmentation makes: rendered by the CPU, and
// packed for a device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <cstring>
#include <opencv2/core.hpp>
#include <utility>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/made_images.h"
#include "worker/data/augment/augment.h"
#include "worker/data/augment/sample_packing.h"
#include "worker/data/augment/sample_recipe.h"

namespace headroom::cuda {

// Images of several shapes: some fill the network's image, some are padded, and
// some must be resized by the letterbox. Each has an object to paste.
class ShapedImages : public MadeImages {
 public:
  // `type` is that of pixels, CV_8UC(n) or CV_16UC(n).
  explicit ShapedImages(int type)
      : MadeImages([this](int64_t sample) {
          return images_[static_cast<size_t>(sample)];
        }),
        type_(type) {
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      images_.push_back(image_of(sample));
    }
  }
  int type() const override { return type_; }

  static constexpr int64_t kSamples = 7;
  static constexpr int64_t kHeight = 96, kWidth = 144;

 private:
  augment::LoadedImage image_of(int64_t sample) const {
    static const std::vector<codecs::ImageSize> sizes{
        {96, 144}, {64, 144}, {96, 70}, {48, 72}, {95, 144}, {31, 144}, {2, 1}};
    augment::LoadedImage image;
    image.source = sizes[static_cast<size_t>(sample)];
    const auto seed = static_cast<uint64_t>(sample);
    std::vector<cv::Mat> bands;
    for (int band = 0; band < CV_MAT_CN(type_); ++band) {
      cv::Mat one;
      cv::extractChannel(test_picture(image.source.height, image.source.width,
                                      seed + 10 * static_cast<uint64_t>(band)),
                         one, band % 3);
      bands.push_back(one);
    }
    cv::merge(bands, image.pixels);
    if (CV_MAT_DEPTH(type_) == CV_16U) {
      image.pixels.convertTo(image.pixels, CV_16U, 256, 37);  // uses both bytes
    }
    image.labels = labels_;
    image.outlines = {ends_, 0, points_.data()};
    return image;
  }

  const int type_;
  const std::vector<labels::BoxLabel> labels_{{0, 0.3f, 0.3f, 0.2f, 0.2f}};
  const std::vector<uint64_t> ends_{3};
  const std::vector<labels::IndexedPoint> points_{
      {0.2f, 0.2f}, {0.4f, 0.2f}, {0.3f, 0.4f}};
  std::vector<augment::LoadedImage> images_;
};

// Packed samples, one after another, and the images that a device must make of
// them.
struct PackedBatch {
  std::vector<uint8_t> bytes;
  std::vector<int64_t> starts;
  std::vector<cv::Mat> expected;

  void add(augment::SampleRecipe recipe) {
    const augment::SamplePacking packing(recipe);
    starts.push_back(static_cast<int64_t>(bytes.size()));
    bytes.resize(bytes.size() + static_cast<size_t>(packing.bytes()));
    packing.write(bytes.data() + starts.back());
    expected.push_back(augment::render_sample(std::move(recipe)));
  }

  at::Tensor region() const {
    const at::Tensor result =
        at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
    std::memcpy(result.mutable_data_ptr(), bytes.data(), bytes.size());
    return result;
  }

  at::Tensor images() const {
    const cv::Mat& one = expected.front();
    return at::empty({static_cast<int64_t>(expected.size()), one.rows, one.cols,
                      one.channels()},
                     one.depth() == CV_16U ? at::kUInt16 : at::kByte);
  }

  // The indexes of the images on the CPU that differ from the expected ones.
  std::vector<size_t> different(const at::Tensor& images) const {
    std::vector<size_t> result;
    for (size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor own = images[static_cast<int64_t>(i)];
      const cv::Mat pixels(expected[i].rows, expected[i].cols,
                           expected[i].type(), own.data_ptr());
      if (!same_pixels(pixels, expected[i])) result.push_back(i);
    }
    return result;
  }
};

// Hyper-parameters that switch on all augmentations of the device.
inline configs::Hyperparameters all_of_augmentation() {
  configs::Hyperparameters hyp;
  hyp.degrees = 10;
  hyp.shear = 3;
  hyp.flipud = hyp.mixup = hyp.mosaic9 = hyp.copy_paste = 0.5;
  hyp.mosaic = 0.7;
  return hyp;
}

inline PackedBatch packed_batch(const configs::Hyperparameters& hyp, int type,
                                codecs::PixelRows rows, int64_t epochs) {
  ShapedImages images(type);
  PackedBatch batch;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (int64_t sample = 0; sample < ShapedImages::kSamples; ++sample) {
      batch.add(augment::plan_mosaic_sample(
                    {3, epoch, sample}, ShapedImages::kSamples,
                    ShapedImages::kHeight, ShapedImages::kWidth, rows, hyp,
                    images)
                    .recipe);
    }
  }
  return batch;
}

}  // namespace headroom::cuda
