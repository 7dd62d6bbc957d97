// Pictures of batches: the input of the network in training, and in validation
// with the labels or the detections.
//
// The samples are made again, at a small size, from the data set, a seed and a
// step. So the run's batches are not used, and every rank makes the same
// picture.
#pragma once

#include <cstdint>
#include <opencv2/core/mat.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/data/augment/loaded_image.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/loader/loader_options.h"
#include "worker/data/loader/loader_plan.h"
#include "worker/data/tiles/random_crop.h"
#include "worker/metrics/detection.h"

namespace headroom::pictures {

// Loads the samples of a data set at the small size that a picture of many
// samples needs.
//
// A large file is read from top to bottom and reduced while it is read, so that
// only a band of rows is in memory (worker/data/codecs/scanline_reader.h lists
// the formats that cannot be read in this way).
class SmallImages : public augment::ImageSource {
 public:
  // Samples are reduced to fit height x width. Of files with bands that are not
  // colours, the first three bands are shown, or the first one as gray. 16 bits
  // are reduced to 8 (codecs/image_bands.h).
  SmallImages(const labels::Dataset& dataset, int64_t height, int64_t width,
              const codecs::ImageLimits& limits = {})
      : dataset_(dataset), height_(height), width_(width), limits_(limits) {}

  bool has_colours() const override { return limits_.type() == CV_8UC3; }
  codecs::ImageSize loaded_size(int64_t sample) const override;
  // A file that cannot be read gives a gray image with a fault and no labels.
  augment::LoadedImage load(int64_t sample, codecs::PixelRows rows) override;

 private:
  const labels::Dataset& dataset_;
  const int64_t height_, width_;
  const codecs::ImageLimits limits_;
};

// SmallCrops: the random crops of training (worker/data/tiles/random_crop.h),
// reduced for a picture of many samples.
class SmallCrops : public augment::ImageSource {
 public:
  // Crops as for the network's input size, then reduces the crop in proportion
  // to height x width. `whole` loads the images that are not cropped, reduced.
  SmallCrops(const loader::LoaderOptions& options, augment::ImageSource& whole,
             const augment::SampleId& made, int64_t height, int64_t width);

  bool has_colours() const override { return whole_.has_colours(); }
  codecs::ImageSize loaded_size(int64_t sample) const override;
  // A window whose rows need too much memory is gray, with a fault.
  augment::LoadedImage load(int64_t sample, codecs::PixelRows rows) override;

 private:
  tiles::RandomCrops crops_;
  augment::ImageSource& whole_;
  const double ratio_y_, ratio_x_;
};

inline constexpr int64_t kMostPictured = 16;

// Up to kMostPictured images side by side, each with its boxes and a line of
// text, in at most 1920 x 1920 pixels.
class PictureGrid {
 public:
  // A grid of `count` images of the network's size. They are enlarged if text
  // would not fit, and reduced if there are many. REQUIRES: 0 < count <=
  // kMostPictured.
  PictureGrid(int64_t count, int64_t image_height, int64_t image_width);

  // The size of one image in the grid.
  int64_t cell_height() const { return cell_.height; }
  int64_t cell_width() const { return cell_.width; }

  struct Boxes {
    std::vector<metrics::Detection> boxes;  // in pixels of the cell
    bool confidences = false;               // write them beside the class names
  };
  // Adds the next image. REQUIRES: `pixels` has the cell's size; the grid is
  // not full.
  void add(const cv::Mat& pixels, const std::string& text, const Boxes& boxes,
           const std::vector<std::string>& class_names);

  const cv::Mat& picture() const { return picture_; }

 private:
  cv::Size cell_;
  int columns_;
  int next_ = 0;
  cv::Mat picture_;
};

inline constexpr int64_t kPicturedBatches = 3;

// The samples that the pictures of the first kPicturedBatches batches show.
std::set<int64_t> pictured_samples(const loader::LoaderOptions& options);

// Draws the first images of one batch, one after another.
class BatchPicture {
 public:
  // The picture of batch `index` of a loader with these options, over all data
  // ranks; without samples if the batch does not exist. Shows the labels.
  BatchPicture(const loader::LoaderOptions& options, int64_t index);

  // The indices of the picture's samples in the data set.
  const std::vector<int64_t>& samples() const { return batch_.samples; }

  // Adds the next sample. Returns false if there are no more.
  bool advance();
  // As advance(), but shows the boxes `found`, in source pixels, instead of the
  // labels. REQUIRES: the options of validation.
  bool advance(const std::vector<metrics::Detection>& found);

  // REQUIRES: samples() is not empty.
  const cv::Mat& picture() const { return grid_->picture(); }

 private:
  bool add_next(const std::vector<metrics::Detection>* found);

  loader::LoaderOptions options_;
  loader::BatchPlan batch_;
  size_t next_ = 0;
  std::optional<PictureGrid> grid_;
  std::optional<SmallImages> images_;
};

}  // namespace headroom::pictures
