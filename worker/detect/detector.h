// Detector: from a picture to boxes, whole or tile by tile.
//
// Whole: the picture is letterboxed to the network's size (shape kept, padded
// to the next multiple of the stride). In tiles: each tile
// is letterboxed so, and the tiles' boxes are merged. The network sees one tile
// at a time, so its memory does not grow with the picture.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <opencv2/core/mat.hpp>
#include <optional>
#include <string>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/data/tiles/tile_plan.h"
#include "worker/metrics/detection.h"
#include "worker/metrics/nms.h"
#include "worker/model/layer_graph.h"

namespace headroom::detect {

// --- From the detections of overlapping tiles to those of the image
//
// An object in an overlap is seen by several tiles: whole by some, cut by the
// border of others. A box that touches a border of its tile inside the image is
// taken for cut. Whole boxes come first, by descending confidence, then cut
// ones; a box is dropped where one of its class was kept that
//
//   overlaps it by more than the threshold (intersection over union), or,
//   if it is cut, covers more than half of it: its rest lies in another tile
//
// What no tile sees whole stays in pieces: let tiles overlap by the size of the
// largest object. No class offset is added to coordinates, and there is no time
// limit. Arithmetic is in float32, from the corner that a box is counted from:
// a mosaic may be wider than float32 counts.

// Boxes that are cut end so close to the border; a network is not exact.
inline constexpr float kCutBorder = 2;

struct TileDetection {
  metrics::Detection detection;  // its box in pixels from the corner x, y
  bool is_cut = false;
  double x = 0, y = 0;  // the corner, in pixels of the image
};

// A box whose corner moves by so much.
metrics::Corners moved(const metrics::Corners& box, double x, double y);

// Does the box, in pixels of the image, touch an inner border of its tile?
bool is_cut(const metrics::Corners& box, const tiles::TileRect& tile,
            int64_t image_height, int64_t image_width);

struct MergeOptions {
  double iou_threshold = 0;
  bool agnostic = false;  // boxes of other classes count too
  int64_t max_detections = 0;
};

// The places in `all` of the boxes that stay, in descending confidence; equal
// ones keep their order. Counts no `max_detections`.
std::vector<size_t> kept_boxes(const std::vector<TileDetection>& all,
                               const MergeOptions& options);
// The boxes themselves, no more than `max_detections`.
std::vector<metrics::Detection> merge_tiles(
    const std::vector<TileDetection>& all, const MergeOptions& options);

// How a picture is cut for detection. (tiles::TileOptions say how a data set is
// cut into files.)
struct DetectionTiles {
  int64_t height = 640, width = 640;  // pixels of the picture
  double overlap = 0;                 // a share of a tile's side
};

// How a picture that is larger than the network's input is made smaller: by the
// mean of the pixels that become one, as in validation, or by the four nearest,
// as in training and in YOLOv5's detect. Larger ones are always bilinear.
enum class Resample { kArea, kBilinear };

struct DetectorOptions {
  int64_t height = 640, width = 640;  // the network's input
  Resample resample = Resample::kArea;
  metrics::NmsOptions nms;              // max_detections: of the whole picture
  std::optional<DetectionTiles> tiles;  // none: the picture as a whole
};

// A picture as the network sees it alone.
struct NetworkImage {
  at::Tensor images;  // [1, C, H, W] float32, 0..1, channels last
  metrics::SourceMapping mapping;
};

// `pixels` (RGB or bands, of 8 or 16 bits) letterboxed into height x width,
// padded to the next multiple of `stride`; none where they are so long and
// narrow that nothing of them would be left.
std::optional<NetworkImage> network_image(const cv::Mat& pixels, int64_t height,
                                          int64_t width, int64_t stride,
                                          Resample resample);

// The tiles of a picture, and what was found in each that was looked at: boxes
// in pixels of the picture, before they are merged. A picture that is looked at
// as a whole is one tile.
struct TileFindings {
  codecs::ImageSize size;
  std::vector<tiles::TileRect> places;
  // None: that tile was not looked at yet.
  std::vector<std::optional<std::vector<metrics::Detection>>> found;
};
// Is told which tile was looked at; false ends the work.
using OnTile = std::function<bool(size_t tile)>;

class Detector {
 public:
  // `model` is on `device`. REQUIRES: height and width are multiples of the
  // model's largest stride.
  Detector(model::LayerGraph& model, DetectorOptions options,
           c10::Device device = c10::kCPU);

  // pixels: of 8 or 16 bits, not empty, with the bands that the model reads
  // (codecs/image_bands.h). Boxes are in its pixels, in descending confidence.
  std::vector<metrics::Detection> detect(const cv::Mat& pixels);

  // The same in steps: the tiles of a picture of that size, of which some may
  // be known; a look at the others; what all of them come to. `look` returns
  // whether every tile was looked at.
  TileFindings tiles_of(codecs::ImageSize size) const;
  bool look(const cv::Mat& pixels, TileFindings& tiles, const OnTile& on_tile);
  // REQUIRES: all tiles are known.
  std::vector<metrics::Detection> merged(const TileFindings& tiles) const;
  MergeOptions merge_options() const;

  // The look at a file whose picture is never held: its rows go by in a band as
  // high as a tile (tiles/tile_cutter.h). REQUIRES: options with tiles. Throws
  // nothing for a bad file: `reason` says why.
  struct FileLook {
    std::string reason;
    bool is_whole = false;  // neither ended nor refused
  };
  FileLook look_in_file(const std::filesystem::path& file,
                        const codecs::ImageLimits& limits, TileFindings& tiles,
                        const OnTile& on_tile);

  // What is found in one tile, in its own pixels.
  std::vector<metrics::Detection> look_at(const cv::Mat& pixels);

 private:
  std::vector<metrics::Detection> look_at_tile(const tiles::TileRect& tile,
                                               const cv::Mat& pixels);

  model::LayerGraph& model_;
  const DetectorOptions options_;
  const c10::Device device_;
};

}  // namespace headroom::detect
