#include "worker/pictures/batch_pictures.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>

#include "parallel/base/check.h"
#include "worker/chart/chart_frame.h"
#include "worker/data/augment/augment.h"
#include "worker/detect/annotate.h"

namespace headroom::pictures {
namespace {

constexpr double kLongestSide = 1920;                      // pixels
constexpr double kShortestCell = 320, kLongestCell = 960;  // its longer side
constexpr size_t kTextLetters = 40;

cv::Size cell_size(int columns, int64_t height, int64_t width) {
  const auto longest = static_cast<double>(std::max(height, width));
  const double wanted = std::clamp(
      longest, kShortestCell, std::min(kLongestCell, kLongestSide / columns));
  const auto scaled = [&](int64_t side) {
    return std::max(
        1, static_cast<int>(static_cast<double>(side) * wanted / longest));
  };
  return {scaled(width), scaled(height)};
}

// One rank that makes whole batches of whole images.
loader::LoaderOptions of_one_rank(loader::LoaderOptions options) {
  options.data_parallel_size = 1;
  options.data_parallel_rank = 0;
  options.micro_batch_size = options.global_batch_size;
  options.batch_norm_group_size = 1;
  options.own_rows = {};
  options.first_step = 0;
  options.host_memory_limit_bytes = 0;
  return options;
}

metrics::Detection labelled(const labels::NormalizedBox& box, double width,
                            double height) {
  const auto at = [](double centre, double size, double side) {
    return static_cast<float>((centre + size / 2) * side);
  };
  return {{at(box.cx, -box.w, width), at(box.cy, -box.h, height),
           at(box.cx, box.w, width), at(box.cy, box.h, height)},
          1,
          box.class_index};
}

metrics::Detection placed(metrics::Detection detection,
                          const augment::NetworkSample& sample) {
  const auto at = [&](float position, double pad) {
    return static_cast<float>(position * sample.ratio + pad);
  };
  metrics::Corners& box = detection.box;
  box = {at(box.x1, sample.pad_x), at(box.y1, sample.pad_y),
         at(box.x2, sample.pad_x), at(box.y2, sample.pad_y)};
  return detection;
}

}  // namespace

PictureGrid::PictureGrid(int64_t count, int64_t image_height,
                         int64_t image_width) {
  HEADROOM_CHECK(count > 0 && count <= kMostPictured,
                 std::to_string(count) + " images of a picture");
  columns_ = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(count))));
  cell_ = cell_size(columns_, image_height, image_width);
  const int rows = (static_cast<int>(count) + columns_ - 1) / columns_;
  picture_ = cv::Mat(rows * cell_.height, columns_ * cell_.width, CV_8UC3,
                     chart::kPaper);
}

void PictureGrid::add(const cv::Mat& pixels, const std::string& text,
                      const Boxes& boxes,
                      const std::vector<std::string>& class_names) {
  HEADROOM_CHECK(pixels.size() == cell_, "an image of another size");
  const cv::Rect place(next_ % columns_ * cell_.width,
                       next_ / columns_ * cell_.height, cell_.width,
                       cell_.height);
  HEADROOM_CHECK(place.y + place.height <= picture_.rows, "no room is left");
  ++next_;
  cv::Mat cell = picture_(place);
  pixels.copyTo(cell);
  detect::AnnotateOptions options;
  options.confidences = boxes.confidences;
  options.line_width = 1;  // and small letters: boxes may be many
  detect::annotate(cell, boxes.boxes, class_names, options);
  const std::string shown = chart::shortened(text, kTextLetters);
  const cv::Size size = chart::text_size(shown, 0.4);
  cv::rectangle(cell, {0, 0, size.width + 10, size.height + 10}, chart::kPaper,
                cv::FILLED);
  chart::draw_text(cell, shown, {5, size.height + 5}, 0.4);
  cv::rectangle(picture_, place, chart::kPaper, 2);
}

std::set<int64_t> pictured_samples(const loader::LoaderOptions& options) {
  std::set<int64_t> samples;
  for (int64_t i = 0; i < kPicturedBatches; ++i) {
    const BatchPicture picture(options, i);
    samples.insert(picture.samples().begin(), picture.samples().end());
  }
  return samples;
}

BatchPicture::BatchPicture(const loader::LoaderOptions& options, int64_t index)
    : options_(of_one_rank(options)) {
  const loader::LoaderPlan plan(options_);
  if (options_.mode == loader::LoaderMode::kValidation &&
      index >= plan.batches_per_epoch()) {
    return;
  }
  batch_ = plan.batch(index);
  std::vector<int64_t>& samples = batch_.samples;
  const auto count =
      std::min(static_cast<int64_t>(samples.size()), kMostPictured);
  samples.resize(static_cast<size_t>(count));
  if (count == 0) return;
  grid_.emplace(count, batch_.height, batch_.width);
  // Each fits its batch; the pictures of a mosaic are as large as in training.
  images_.emplace(*options_.dataset, grid_->cell_height(), grid_->cell_width(),
                  options_.bands);
}

bool BatchPicture::advance() { return add_next(nullptr); }

bool BatchPicture::advance(const std::vector<metrics::Detection>& found) {
  return add_next(&found);
}

bool BatchPicture::add_next(const std::vector<metrics::Detection>* found) {
  if (next_ == samples().size()) return false;
  const augment::SampleId id =
      batch_.id_of(options_.seed, static_cast<int64_t>(next_++));
  const int64_t height = grid_->cell_height(), width = grid_->cell_width();
  const codecs::PixelRows rows{0, height};
  SmallCrops crops(options_, *images_, id, height, width);
  augment::ImageSource& images = options_.random_crop
                                     ? static_cast<augment::ImageSource&>(crops)
                                     : *images_;
  augment::NetworkSample sample;
  switch (loader::mode_in(options_, id.epoch)) {
    case loader::LoaderMode::kTrainMosaic:
      sample = augment::make_mosaic_sample(id, options_.dataset->size(), height,
                                           width, rows, options_.hyp, images);
      break;
    case loader::LoaderMode::kTrainRect:
      sample = augment::make_rect_sample(id, height, width, rows, options_.hyp,
                                         images);
      break;
    case loader::LoaderMode::kValidation:
      sample = augment::make_validation_sample(id.sample, height, width, rows,
                                               *images_);
      break;
  }
  PictureGrid::Boxes boxes;
  if (found == nullptr) {
    for (const labels::NormalizedBox& box : sample.boxes) {
      boxes.boxes.push_back(labelled(box, static_cast<double>(width),
                                     static_cast<double>(height)));
    }
  } else {
    boxes.confidences = true;
    for (const metrics::Detection& detection : *found) {
      boxes.boxes.push_back(placed(detection, sample));
    }
  }
  grid_->add(sample.pixels,
             options_.dataset->path(id.sample).filename().string(), boxes,
             options_.dataset->class_names());
  return next_ < samples().size();
}

}  // namespace headroom::pictures
