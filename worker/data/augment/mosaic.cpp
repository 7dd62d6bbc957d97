#include "worker/data/augment/mosaic.h"

#include <algorithm>
#include <utility>

#include "worker/data/codecs/image_bands.h"

namespace headroom::augment {
namespace {

// The part of the tile that is in rows `rows` of the canvas. If only some rows
// are needed, memory is scarce, so the other pixels are released.
PlacedTile place_tile(const cv::Mat& image, const MosaicTile& tile,
                      codecs::PixelRows rows, codecs::ImageSize canvas) {
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

// Moves the outlines of an image's boxes to the canvas.
void place_outlines(const labels::Outlines& outlines,
                    const labels::Placement& placement,
                    codecs::ImageSize canvas, size_t first_box,
                    size_t num_boxes, std::vector<OutlinedBox>& placed) {
  for (size_t i = 0; i < num_boxes; ++i) {
    const auto points = outlines.of(i);
    if (points.empty()) continue;
    OutlinedBox object{first_box + i, {}};
    for (const auto& [x, y] : points) {
      object.outline.emplace_back(
          std::clamp<double>(placement.width * x + placement.x, 0,
                             canvas.width),
          std::clamp<double>(placement.height * y + placement.y, 0,
                             canvas.height));
    }
    placed.push_back(std::move(object));
  }
}

}  // namespace

MosaicTile mosaic_tile(int quarter, cv::Point centre, codecs::ImageSize image,
                       codecs::ImageSize canvas) {
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
  // The image's corner at the centre is kept; its opposite sides are cut off.
  tile.image = tile.canvas;
  tile.image.x = left ? image.width - tile.canvas.width : 0;
  tile.image.y = top ? image.height - tile.canvas.height : 0;
  return tile;
}

MosaicTile mosaic_tile_of_nine(int place, cv::Point corner,
                               codecs::ImageSize image,
                               codecs::ImageSize canvas) {
  const int height = canvas.height / 2, width = canvas.width / 2;
  // The offset of an image within its place, along one axis. In the place
  // before the middle, the image is moved to the far edge of its place; in the
  // place after the middle, to the near edge; in the middle place, the image is
  // centred.
  const auto pushed = [](int which, int side, int size) {
    constexpr int kMiddle = 1;
    if (which == kMiddle) return (side - size) / 2;
    return which < kMiddle ? side - size : 0;
  };
  const cv::Point origin(
      place % 3 * width + pushed(place % 3, width, image.width) - corner.x,
      place / 3 * height + pushed(place / 3, height, image.height) - corner.y);
  MosaicTile tile;
  tile.canvas = cv::Rect(origin.x, origin.y, image.width, image.height) &
                cv::Rect(0, 0, canvas.width, canvas.height);
  // A tile outside the canvas gets empty rectangles.
  tile.image = tile.canvas.empty() ? cv::Rect() : tile.canvas - origin;
  if (tile.canvas.empty()) tile.canvas = {origin.x, origin.y, 0, 0};
  return tile;
}

MosaicPlan draw_mosaic(int64_t sample, const DrawPartner& partner,
                       int64_t height, int64_t width, double nine,
                       sampling::RandomStream& draws) {
  const auto h = static_cast<double>(height);
  const auto w = static_cast<double>(width);
  MosaicPlan plan;
  // No draw is made for mosaics of nine if they are switched off.
  const bool is_nine = nine > 0 && draws.uniform() < nine;
  if (is_nine) {
    plan.centre.y = static_cast<int>(draws.uniform(0, h));
    plan.centre.x = static_cast<int>(draws.uniform(0, w));
  } else {
    plan.centre.y = static_cast<int>(draws.uniform(h / 2, 2 * h - h / 2));
    plan.centre.x = static_cast<int>(draws.uniform(w / 2, 2 * w - w / 2));
  }
  const size_t count = is_nine ? 9 : 4;
  plan.samples = {sample};
  while (plan.samples.size() < count) {
    plan.samples.push_back(partner());
  }
  for (size_t i = count - 1; i > 0; --i) {  // Fisher-Yates shuffle
    const auto other =
        static_cast<size_t>(draws.below(static_cast<int64_t>(i) + 1));
    std::swap(plan.samples[i], plan.samples[other]);
  }
  return plan;
}

Mosaic build_mosaic(const MosaicPlan& plan, int64_t height, int64_t width,
                    codecs::PixelRows rows, const LoadImage& load,
                    std::vector<std::string>& faults) {
  const codecs::ImageSize size{static_cast<int32_t>(2 * height),
                               static_cast<int32_t>(2 * width)};
  Mosaic mosaic;
  rows = codecs::clamp_rows(rows, size.height);
  const bool is_nine = plan.samples.size() == 9;
  for (size_t i = 0; i < plan.samples.size(); ++i) {
    const LoadedImage image = load(plan.samples[i]);
    if (!image.fault.empty()) faults.push_back(image.fault);
    mosaic.type = image.pixels.type();
    const codecs::ImageSize loaded{image.pixels.rows, image.pixels.cols};
    const int place = static_cast<int>(i);
    const MosaicTile tile =
        is_nine ? mosaic_tile_of_nine(place, plan.centre, loaded, size)
                : mosaic_tile(place, plan.centre, loaded, size);
    mosaic.tiles.push_back(place_tile(image.pixels, tile, rows, size));
    const labels::Placement placement{
        static_cast<double>(image.pixels.cols),
        static_cast<double>(image.pixels.rows),
        static_cast<double>(tile.canvas.x - tile.image.x),
        static_cast<double>(tile.canvas.y - tile.image.y)};
    const auto boxes = labels::place_boxes(image.labels, placement);
    place_outlines(image.outlines, placement, size, mosaic.boxes.size(),
                   boxes.size(), mosaic.outlines);
    mosaic.boxes.insert(mosaic.boxes.end(), boxes.begin(), boxes.end());
  }
  labels::clip_boxes(mosaic.boxes, size.width, size.height);
  return mosaic;
}

void paste_objects(Mosaic& mosaic, std::span<const PixelOutline> outlines,
                   int width, codecs::PixelRows rows) {
  cv::Mat canvas = place_tiles(mosaic.tiles, width, rows, mosaic.type);
  paste_mirrored(canvas, rows.begin, outlines);
  const cv::Point origin(0, static_cast<int>(rows.begin));
  mosaic.tiles = {{canvas, origin, {origin, canvas.size()}}};
}

}  // namespace headroom::augment
