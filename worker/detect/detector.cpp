#include "worker/detect/detector.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "worker/data/augment/letterbox.h"
#include "worker/model/step_context.h"

namespace headroom::detect {
namespace {

// Boxes that are cut end this close to the border; a network is not exact.
constexpr float kBorder = 2;
constexpr float kCovered = 0.5F;

float area(const metrics::Corners& box) {
  return std::max(0.0F, box.x2 - box.x1) * std::max(0.0F, box.y2 - box.y1);
}

// The share of `box` that `other` covers.
float covered(const metrics::Corners& box, const metrics::Corners& other) {
  const float w = std::min(box.x2, other.x2) - std::max(box.x1, other.x1);
  const float h = std::min(box.y2, other.y2) - std::max(box.y1, other.y1);
  const float whole = area(box);
  return w > 0 && h > 0 && whole > 0 ? w * h / whole : 0;
}

bool is_repeated(const TileDetection& one,
                 const std::vector<metrics::Detection>& kept,
                 const MergeOptions& options) {
  const auto threshold = static_cast<float>(options.iou_threshold);
  return std::any_of(
      kept.begin(), kept.end(), [&](const metrics::Detection& other) {
        if (!options.agnostic &&
            other.class_index != one.detection.class_index) {
          return false;
        }
        const metrics::Corners& box = one.detection.box;
        return metrics::corner_iou(box, other.box, 0) > threshold ||
               (one.is_cut && covered(box, other.box) > kCovered);
      });
}

// [1, C, H, W] float32 in 0..1, channels last.
at::Tensor network_input_of(const cv::Mat& pixels) {
  const bool is_deep = pixels.depth() == CV_16U;
  return at::from_blob(pixels.data,
                       {1, pixels.rows, pixels.cols, pixels.channels()},
                       is_deep ? at::kUInt16 : at::kByte)
      .permute({0, 3, 1, 2})
      .to(at::kFloat)
      .div_(is_deep ? codecs::kMostLevel : 255);
}

}  // namespace

bool is_cut(const metrics::Corners& box, const tiles::TileRect& tile,
            int64_t image_height, int64_t image_width) {
  const auto left = static_cast<float>(tile.x);
  const auto top = static_cast<float>(tile.y);
  const auto right = static_cast<float>(tile.x + tile.width);
  const auto bottom = static_cast<float>(tile.y + tile.height);
  return (tile.x > 0 && box.x1 < left + kBorder) ||
         (tile.y > 0 && box.y1 < top + kBorder) ||
         (tile.x + tile.width < image_width && box.x2 > right - kBorder) ||
         (tile.y + tile.height < image_height && box.y2 > bottom - kBorder);
}

std::vector<metrics::Detection> merge_tiles(std::vector<TileDetection> all,
                                            const MergeOptions& options) {
  std::stable_sort(all.begin(), all.end(),
                   [](const TileDetection& a, const TileDetection& b) {
                     if (a.is_cut != b.is_cut) return b.is_cut;
                     return a.detection.confidence > b.detection.confidence;
                   });
  std::vector<metrics::Detection> kept;
  for (const TileDetection& one : all) {
    if (!is_repeated(one, kept, options)) kept.push_back(one.detection);
  }
  std::stable_sort(
      kept.begin(), kept.end(),
      [](const metrics::Detection& a, const metrics::Detection& b) {
        return a.confidence > b.confidence;
      });
  const auto most = static_cast<size_t>(options.max_detections);
  if (kept.size() > most) kept.resize(most);
  return kept;
}

Detector::Detector(model::LayerGraph& model, DetectorOptions options,
                   c10::Device device)
    : model_(model), options_(std::move(options)), device_(device) {}

std::optional<NetworkImage> network_image(const cv::Mat& pixels, int64_t height,
                                          int64_t width, int64_t stride,
                                          Resample resample) {
  augment::LetterboxOptions shape;
  shape.smallest = true;
  shape.stride = stride;
  const codecs::ImageSize source{pixels.rows, pixels.cols};
  const augment::Letterbox geometry =
      augment::letterbox_geometry(source, height, width, shape);
  if (geometry.resized_height == 0 || geometry.resized_width == 0) {
    return std::nullopt;
  }
  const cv::Mat input = augment::letterbox(
      augment::resize_loaded(pixels, augment::placed_picture(geometry).size,
                             resample == Resample::kBilinear),
      geometry);
  return NetworkImage{network_input_of(input),
                      {source.height, source.width, geometry.ratio_x,
                       geometry.pad_x, geometry.pad_y}};
}

std::vector<metrics::Detection> Detector::look_at(const cv::Mat& pixels) {
  const at::NoGradGuard no_grad;
  const auto input = network_image(pixels, options_.height, options_.width,
                                   model_.max_stride(), options_.resample);
  if (!input) return {};
  const auto heads =
      model_.forward(input->images.to(device_), model::StepContext());
  auto detections =
      metrics::non_maximum_suppression(model_.decode(heads), options_.nms)
          .at(0);
  for (metrics::Detection& detection : detections) {
    detection.box = metrics::to_source(detection.box, input->mapping);
  }
  return detections;
}

std::vector<metrics::Detection> Detector::detect(const cv::Mat& pixels) {
  if (!options_.tiles) return look_at(pixels);
  std::vector<TileDetection> all;
  for (const tiles::TileRect& tile :
       tiles::tile_grid(pixels.rows, pixels.cols, options_.tiles->height,
                        options_.tiles->width, options_.tiles->overlap)) {
    const cv::Rect place(static_cast<int>(tile.x), static_cast<int>(tile.y),
                         static_cast<int>(tile.width),
                         static_cast<int>(tile.height));
    for (metrics::Detection& detection : look_at(pixels(place).clone())) {
      metrics::Corners& box = detection.box;
      box = {box.x1 + static_cast<float>(tile.x),
             box.y1 + static_cast<float>(tile.y),
             box.x2 + static_cast<float>(tile.x),
             box.y2 + static_cast<float>(tile.y)};
      all.push_back({detection, is_cut(box, tile, pixels.rows, pixels.cols)});
    }
  }
  MergeOptions merge;
  merge.iou_threshold = options_.nms.iou_threshold;
  merge.agnostic = options_.nms.agnostic;
  merge.max_detections = options_.nms.max_detections;
  return merge_tiles(std::move(all), merge);
}

}  // namespace headroom::detect
