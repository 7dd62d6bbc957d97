#include "worker/detect/detector.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "worker/data/augment/letterbox.h"
#include "worker/data/tiles/tile_grid.h"
#include "worker/detect/tile_merge.h"
#include "worker/metrics/box_mapping.h"
#include "worker/model/step_context.h"

namespace headroom::detect {
namespace {

// [1, C, H, W] float32 in 0..1, channels last.
at::Tensor network_input_of(const cv::Mat& pixels) {
  return at::from_blob(pixels.data,
                       {1, pixels.rows, pixels.cols, pixels.channels()},
                       at::kByte)
      .permute({0, 3, 1, 2})
      .to(at::kFloat)
      .div_(255);
}

}  // namespace

Detector::Detector(model::LayerGraph& model, DetectorOptions options)
    : model_(model), options_(std::move(options)) {}

std::optional<NetworkImage> network_image(const cv::Mat& pixels, int64_t height,
                                          int64_t width, int64_t stride) {
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
                             false),
      geometry);
  return NetworkImage{network_input_of(input),
                      {source.height, source.width, geometry.ratio_x,
                       geometry.pad_x, geometry.pad_y}};
}

std::vector<metrics::Detection> Detector::look_at(const cv::Mat& pixels) {
  const at::NoGradGuard no_grad;
  const auto input = network_image(pixels, options_.height, options_.width,
                                   model_.max_stride());
  if (!input) return {};
  const auto heads = model_.forward(input->images, model::StepContext());
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
