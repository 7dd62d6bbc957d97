#include "worker/data/mosaic.h"

#include <algorithm>
#include <utility>
namespace headroom {
namespace {

// What of the tile is in rows `rows` of the canvas. Pixels that are not needed
// are let go of where rows are few: then memory is what counts.
PlacedTile place_tile(const cv::Mat& image, const MosaicTile& tile,
                      PixelRows rows, ImageSize canvas) {
  const cv::Rect kept(0, static_cast<int>(rows.begin), canvas.width,
                      static_cast<int>(rows.size()));
  PlacedTile placed{image, tile.canvas.tl() - tile.image.tl(),
                    tile.canvas & kept};
  if (rows.size() == canvas.height) return placed;
  placed.pixels = placed.seen.empty()
                      ? cv::Mat()
                      : image(placed.seen - placed.origin).clone();
  placed.origin = placed.seen.tl();
  return placed;
}

}  // namespace

MosaicTile mosaic_tile(int quarter, cv::Point centre, ImageSize image,
                       ImageSize canvas) {
  const bool left = quarter % 2 == 0;
  const bool top = quarter < 2;
  const int x1 = left ? std::max(centre.x - image.width, 0) : centre.x;
  const int y1 = top ? std::max(centre.y - image.height, 0) : centre.y;
  const int x2 =
      left ? centre.x : std::min(centre.x + image.width, canvas.width);
  const int y2 =
      top ? centre.y : std::min(centre.y + image.height, canvas.height);
  MosaicTile tile;
  tile.canvas = {x1, y1, x2 - x1, y2 - y1};
  // The inner corner is kept, the outer one cut.
  tile.image = tile.canvas;
  tile.image.x = left ? image.width - tile.canvas.width : 0;
  tile.image.y = top ? image.height - tile.canvas.height : 0;
  return tile;
}

MosaicPlan draw_mosaic(int64_t sample, int64_t num_samples, int64_t height,
                       int64_t width, RandomStream& draws) {
  const auto h = static_cast<double>(height);
  const auto w = static_cast<double>(width);
  MosaicPlan plan;
  plan.centre.y = static_cast<int>(draws.uniform(h / 2, 2 * h - h / 2));
  plan.centre.x = static_cast<int>(draws.uniform(w / 2, 2 * w - w / 2));
  plan.samples[0] = sample;
  for (size_t i = 1; i < 4; ++i) plan.samples[i] = draws.below(num_samples);
  for (size_t i = 3; i > 0; --i) {  // Fisher and Yates
    const auto other =
        static_cast<size_t>(draws.below(static_cast<int64_t>(i) + 1));
    std::swap(plan.samples[i], plan.samples[other]);
  }
  return plan;
}

Mosaic build_mosaic(const MosaicPlan& plan, int64_t height, int64_t width,
                    PixelRows rows, const LoadImage& load,
                    std::vector<std::string>& faults) {
  const ImageSize size{static_cast<int32_t>(2 * height),
                       static_cast<int32_t>(2 * width)};
  Mosaic mosaic;
  rows = clamp_rows(rows, size.height);
  for (int quarter = 0; quarter < 4; ++quarter) {
    const LoadedImage image = load(plan.samples[quarter]);
    if (!image.fault.empty()) faults.push_back(image.fault);
    const MosaicTile tile = mosaic_tile(
        quarter, plan.centre, {image.pixels.rows, image.pixels.cols}, size);
    mosaic.tiles.push_back(place_tile(image.pixels, tile, rows, size));
    const Placement placement{
        static_cast<double>(image.pixels.cols),
        static_cast<double>(image.pixels.rows),
        static_cast<double>(tile.canvas.x - tile.image.x),
        static_cast<double>(tile.canvas.y - tile.image.y)};
    const auto boxes = place_boxes(image.labels, placement);
    mosaic.boxes.insert(mosaic.boxes.end(), boxes.begin(), boxes.end());
  }
  clip_boxes(mosaic.boxes, size.width, size.height);
  return mosaic;
}

}  // namespace headroom
