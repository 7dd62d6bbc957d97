// Detector: finds boxes in a picture, as a whole or in tiles.
//
// A whole picture is letterboxed to the network's size: its shape is kept, and
// it is padded to the next multiple of the stride. With tiles, each tile is
// letterboxed in the same way, and the boxes of all tiles are merged. The
// network processes one tile at a time, so the memory does not depend on the
// size of the picture.
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

// --- Merging the detections of overlapping tiles
//
// An object in an overlap appears in several tiles: whole in some, cut by the
// border in others. A box that touches a border of its tile inside the image
// counts as cut. Whole boxes are handled first, by descending confidence, then
// cut boxes. A box is dropped if a kept box of the same class
//
//   - overlaps it by more than the threshold (intersection over union), or
//   - covers more than half of it, if the dropped box is cut: the rest of its
//     object is in another tile.
//
// An object that no tile contains whole is reported in pieces, so tiles should
// overlap by the size of the largest object. Unlike in YOLOv5, coordinates get
// no class offset, and there is no time limit. Arithmetic is in float32
// relative to the corner of the tile, because float32 cannot represent all
// pixel positions of a wide mosaic.

// A box that ends this close to a border counts as cut: a network is not exact.
inline constexpr float kCutBorder = 2;

struct TileDetection {
  metrics::Detection detection;  // box in pixels relative to (x, y)
  bool is_cut = false;
  double x = 0, y = 0;  // the tile's corner, in pixels of the image
};

// The box moved by (x, y).
metrics::Corners moved(const metrics::Corners& box, double x, double y);

// Whether the box, in pixels of the image, touches an inner border of its tile.
bool is_cut(const metrics::Corners& box, const tiles::TileRect& tile,
            int64_t image_height, int64_t image_width);

struct MergeOptions {
  double iou_threshold = 0;
  bool agnostic = false;  // compare boxes of different classes, too
  int64_t max_detections = 0;
};

// The indices in `all` of the boxes that are kept, by descending confidence;
// boxes of equal confidence keep their order. Does not apply `max_detections`.
std::vector<size_t> kept_boxes(const std::vector<TileDetection>& all,
                               const MergeOptions& options);
// The kept boxes themselves, at most `max_detections`.
std::vector<metrics::Detection> merge_tiles(
    const std::vector<TileDetection>& all, const MergeOptions& options);

// How a picture is cut for detection. (tiles::TileOptions describe how a data
// set is cut into files.)
struct DetectionTiles {
  int64_t height = 640, width = 640;  // tile size in the picture's pixels
  double overlap = 0;                 // a fraction of a tile's side
};

// How a picture larger than the network's input is reduced. kArea: each new
// pixel is the mean of the old pixels in its area, as in validation. kBilinear:
// it is interpolated between the four nearest pixels, as in training and in
// YOLOv5's detect. Enlarging is always bilinear.
enum class Resample { kArea, kBilinear };

struct DetectorOptions {
  int64_t height = 640, width = 640;  // the network's input
  Resample resample = Resample::kArea;
  metrics::NmsOptions nms;              // max_detections is per picture
  std::optional<DetectionTiles> tiles;  // nullopt examines the whole picture
};

// A picture as a batch of one image.
struct NetworkImage {
  at::Tensor images;  // [1, C, H, W] float32, 0..1, channels last
  metrics::SourceMapping mapping;
};

// Letterboxes `pixels` (RGB or bands, 8 or 16 bits) into height x width, padded
// to the next multiple of `stride`. Returns nullopt if the picture is so long
// and narrow that a side would be reduced to 0 pixels.
std::optional<NetworkImage> network_image(const cv::Mat& pixels, int64_t height,
                                          int64_t width, int64_t stride,
                                          Resample resample);

// The tiles of a picture and the findings in each: boxes in pixels of the
// picture, before merging. A picture that is not cut is one tile.
struct TileFindings {
  codecs::ImageSize size;
  std::vector<tiles::TileRect> places;
  // nullopt: the tile was not examined yet.
  std::vector<std::optional<std::vector<metrics::Detection>>> found;
};
// Called with each tile that was examined; returns false to end the work.
using OnTile = std::function<bool(size_t tile)>;

class Detector {
 public:
  // `model` must be on `device`. REQUIRES: height and width are multiples of
  // the model's largest stride.
  Detector(model::LayerGraph& model, DetectorOptions options,
           c10::Device device = c10::kCPU);

  // Detects in `pixels`: 8 or 16 bits, not empty, with the model's bands
  // (codecs/image_bands.h). Boxes are in its pixels, by descending confidence.
  std::vector<metrics::Detection> detect(const cv::Mat& pixels);

  // The steps of detect(). tiles_of() returns the tiles of a picture of that
  // size; the caller may fill in known findings of some tiles. look() examines
  // the other tiles and returns whether all were examined. merged() merges the
  // findings.
  TileFindings tiles_of(codecs::ImageSize size) const;
  bool look(const cv::Mat& pixels, TileFindings& tiles, const OnTile& on_tile);
  // REQUIRES: every tile has been examined; a tile may have no boxes.
  std::vector<metrics::Detection> merged(const TileFindings& tiles) const;
  MergeOptions merge_options() const;

  struct FileLook {
    std::string reason;     // why the file cannot be read; "" if it can
    bool is_whole = false;  // whether all tiles were examined
  };
  // Like look(), for a picture that is not held whole in memory: its rows are
  // read into a band as high as a tile (tiles/tile_cutter.h). Does not throw
  // for a bad file: `reason` is set instead. REQUIRES: options with tiles.
  FileLook look_in_file(const std::filesystem::path& file,
                        const codecs::ImageLimits& limits, TileFindings& tiles,
                        const OnTile& on_tile);

  // Detects in the pixels of one tile; boxes are in pixels of the tile.
  std::vector<metrics::Detection> look_at(const cv::Mat& pixels);

 private:
  std::vector<metrics::Detection> look_at_tile(const tiles::TileRect& tile,
                                               const cv::Mat& pixels);

  model::LayerGraph& model_;
  const DetectorOptions options_;
  const c10::Device device_;
};

}  // namespace headroom::detect
