#include "worker/pictures/batch_pictures.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/chart/chart_text.h"
#include "worker/data/augment/augment.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/codecs/exif.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/detect/detection_folder.h"

namespace headroom::pictures {
namespace {

// A file whose pixels take at most this memory, 12 MiB, is decoded whole.
constexpr int64_t kMostDecoded = 3 << 22;  // bytes

// Each row of the result is the mean of the rows that it covers in the file.
cv::Mat shrink(codecs::ScanlineReader& reader, codecs::ImageSize size) {
  const codecs::ImageHeader& header = reader.header();
  const auto first_of = [&](int row) {
    return header.height * row / size.height;
  };
  cv::Mat result(size.height, size.width, CV_8UC3);
  for (int row = 0; row < size.height; ++row) {
    const int64_t count = first_of(row + 1) - first_of(row);
    cv::Mat band(static_cast<int>(count), static_cast<int>(header.width),
                 reader.type());
    reader.read(band);
    cv::Mat target = result.row(row);
    cv::resize(codecs::shown_colours(band), target, target.size(), 0, 0,
               cv::INTER_AREA);
  }
  reader.finish();
  return result;
}

struct SmallImage {
  cv::Mat pixels;
  std::string reason;  // why there are no pixels
};

SmallImage read_small(const std::filesystem::path& file,
                      codecs::ImageSize source, codecs::ImageSize wanted,
                      const codecs::ImageLimits& limits) {
  SmallImage image;
  const int64_t bytes =
      int64_t{source.height} * source.width * CV_ELEM_SIZE(limits.type());
  const bool is_smaller =
      wanted.height <= source.height && wanted.width <= source.width;
  if (bytes <= kMostDecoded || !is_smaller) {
    const codecs::ImageResult decoded = codecs::decode_image(file, limits);
    image.reason = decoded.reason;
    if (decoded.ok()) {
      image.pixels = augment::resize_loaded(
          codecs::shown_colours(decoded.pixels), wanted, false);
    }
    return image;
  }
  image.reason = codecs::read_image_rows(
      file, limits, [&](codecs::ScanlineReader& reader) {
        const int orientation = reader.header().orientation;
        codecs::ImageSize stored = wanted;
        if (codecs::swaps_axes(orientation))
          std::swap(stored.height, stored.width);
        image.pixels = codecs::upright(shrink(reader, stored), orientation);
      });
  if (!image.reason.empty()) image.pixels.release();
  return image;
}

// The most pixels of a window with 8-bit colours: 48 MiB of the 64 MiB that
// pictures may use.
constexpr int64_t kMostPixels = int64_t{1} << 24;

codecs::ImageLimits limits_of_pictures(const loader::LoaderOptions& options) {
  codecs::ImageLimits limits = options.image_limits();
  // Fewer pixels are allowed with more bands (image_bands.h) or 16 bits.
  limits.max_pixels = kMostPixels / sample_bytes(!options.ranges.empty());
  return limits;
}

double ratio(int64_t small, int64_t large) {
  return static_cast<double>(small) / static_cast<double>(large);
}

int32_t scaled(int32_t side, double by) {
  return std::max<int32_t>(1, static_cast<int32_t>(std::lround(side * by)));
}

}  // namespace

codecs::ImageSize SmallImages::loaded_size(int64_t sample) const {
  return augment::fit_size(dataset_.image_size(sample), height_, width_);
}

augment::LoadedImage SmallImages::load(int64_t sample, codecs::PixelRows rows) {
  const codecs::ImageSize size = loaded_size(sample);
  const std::filesystem::path file = dataset_.path(sample);
  SmallImage small =
      read_small(file, dataset_.image_size(sample), size, limits_);
  if (small.reason.empty() &&
      (small.pixels.rows != size.height || small.pixels.cols != size.width)) {
    small.reason = "another size than when the data set was indexed";
  }
  augment::LoadedImage image;
  image.source = dataset_.image_size(sample);
  if (small.reason.empty()) {
    image.labels = dataset_.labels(sample);
  } else {
    image.fault = file.string() + ": " + small.reason;
    small.pixels = cv::Mat(size.height, size.width, CV_8UC3,
                           cv::Scalar::all(kernels::kFillGray));
  }
  rows = codecs::clamp_rows(rows, size.height);
  image.pixels = small.pixels.rowRange(static_cast<int>(rows.begin),
                                       static_cast<int>(rows.end));
  return image;
}

SmallCrops::SmallCrops(const loader::LoaderOptions& options,
                       augment::ImageSource& whole,
                       const augment::SampleId& made, int64_t height,
                       int64_t width)
    : crops_(*options.dataset, whole, made, options.image_height,
             options.image_width, limits_of_pictures(options)),
      whole_(whole),
      ratio_y_(ratio(height, options.image_height)),
      ratio_x_(ratio(width, options.image_width)) {}

codecs::ImageSize SmallCrops::loaded_size(int64_t sample) const {
  if (!crops_.is_cut(sample)) return whole_.loaded_size(sample);
  const codecs::ImageSize window = crops_.loaded_size(sample);
  return {scaled(window.height, ratio_y_), scaled(window.width, ratio_x_)};
}

augment::LoadedImage SmallCrops::load(int64_t sample, codecs::PixelRows rows) {
  if (!crops_.is_cut(sample)) return whole_.load(sample, rows);
  const codecs::ImageSize size = loaded_size(sample);
  augment::LoadedImage image = crops_.load(sample, codecs::kAllRows);
  rows = codecs::clamp_rows(rows, size.height);
  image.pixels =
      augment::resize_loaded(codecs::shown_colours(image.pixels), size, false)
          .rowRange(static_cast<int>(rows.begin), static_cast<int>(rows.end));
  return image;
}

namespace {

constexpr double kLongestSide = 1920;                      // pixels
constexpr double kShortestCell = 320, kLongestCell = 960;  // longer side
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

// The options for one rank that makes whole batches of whole images.
loader::LoaderOptions of_one_rank(loader::LoaderOptions options) {
  options.data_parallel_size = 1;
  options.data_parallel_rank = 0;
  options.micro_batch_size = options.global_batch_size;
  options.batch_norm_rule = {};
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
                 cat(count, " images of a picture"));
  columns_ = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(count))));
  cell_ = cell_size(columns_, image_height, image_width);
  const auto rows = static_cast<int>(divided_up(count, columns_));
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
  options.line_width = 1;  // thin lines and small letters for many boxes
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
  // Each image is scaled to fit into a cell of the grid. In a mosaic it has the
  // same size relative to the mosaic as in training.
  images_.emplace(*options_.dataset, grid_->cell_height(), grid_->cell_width(),
                  options_.image_limits());
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
