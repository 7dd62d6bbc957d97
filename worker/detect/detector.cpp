#include "worker/detect/detector.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <opencv2/imgproc.hpp>
#include <unordered_map>
#include <utility>

#include "worker/data/augment/letterbox.h"
#include "worker/data/tiles/tile_cutter.h"
#include "worker/model/step_context.h"

namespace headroom::detect {
namespace {

constexpr float kCovered = 0.5F;

float area(const metrics::Corners& box) {
  return std::max(0.0F, box.x2 - box.x1) * std::max(0.0F, box.y2 - box.y1);
}

// The fraction of `box` that `other` covers.
float covered(const metrics::Corners& box, const metrics::Corners& other) {
  const float w = std::min(box.x2, other.x2) - std::max(box.x1, other.x1);
  const float h = std::min(box.y2, other.y2) - std::max(box.y1, other.y1);
  const float whole = area(box);
  return w > 0 && h > 0 && whole > 0 ? w * h / whole : 0;
}

bool is_repeated_by(const TileDetection& one, const TileDetection& other,
                    const MergeOptions& options) {
  if (!options.agnostic &&
      other.detection.class_index != one.detection.class_index) {
    return false;
  }
  const metrics::Corners& box = one.detection.box;
  const metrics::Corners beside =
      moved(other.detection.box, other.x - one.x, other.y - one.y);
  return metrics::corner_iou(box, beside, 0) >
             static_cast<float>(options.iou_threshold) ||
         (one.is_cut && covered(box, beside) > kCovered);
}

// Kept detections, indexed by the cells of the picture that their boxes touch.
// Only boxes that share a cell can overlap, so only these are compared: a map
// may have a hundred thousand boxes.
class KeptDetections {
 public:
  bool repeat(const TileDetection& one, const MergeOptions& options) const {
    bool found = false;
    over_cells(one, [&](uint64_t cell) {
      const auto here = cells_.find(cell);
      found = found || (here != cells_.end() &&
                        std::ranges::any_of(
                            here->second, [&](const TileDetection* other) {
                              return is_repeated_by(one, *other, options);
                            }));
    });
    return found;
  }
  // Keeps a pointer to `one`.
  void add(const TileDetection& one) {
    over_cells(one, [&](uint64_t cell) { cells_[cell].push_back(&one); });
  }

 private:
  static constexpr double kCell = 128;  // pixels

  template <typename Use>
  static void over_cells(const TileDetection& one, const Use& use) {
    const auto cell = [](double place) {
      return static_cast<uint32_t>(std::max(0.0, place) / kCell);
    };
    const metrics::Corners& box = one.detection.box;
    const uint32_t right = cell(one.x + box.x2), bottom = cell(one.y + box.y2);
    for (uint32_t y = cell(one.y + box.y1); y <= bottom; ++y) {
      for (uint32_t x = cell(one.x + box.x1); x <= right; ++x) {
        use(uint64_t{y} << 32 | x);
      }
    }
  }

  std::unordered_map<uint64_t, std::vector<const TileDetection*>> cells_;
};

// Converts to [1, C, H, W] float32 in 0..1, channels last.
at::Tensor network_input_of(const cv::Mat& pixels) {
  const bool is_deep = pixels.depth() == CV_16U;
  return at::from_blob(pixels.data,
                       {1, pixels.rows, pixels.cols, pixels.channels()},
                       is_deep ? at::kUInt16 : at::kByte)
      .permute({0, 3, 1, 2})
      .to(at::kFloat)
      .div_(is_deep ? codecs::kMostLevel : 255);
}

// Converts a tile's samples like decode_image() converts a whole picture.
cv::Mat in_network_samples(const cv::Mat& pixels,
                           const codecs::ImageLimits& limits) {
  if (pixels.depth() != CV_MAT_DEPTH(limits.type())) {
    throw codecs::ImageRefusal(
        "it has more than 8 bits a sample and is too large to be held: cut it "
        "with headroom tile");
  }
  if (pixels.channels() != 1 || limits.bands != codecs::kColours) {
    return pixels.clone();
  }
  cv::Mat colours;
  cv::cvtColor(pixels, colours, cv::COLOR_GRAY2RGB);
  return colours;
}

}  // namespace

metrics::Corners moved(const metrics::Corners& box, double x, double y) {
  return {static_cast<float>(box.x1 + x), static_cast<float>(box.y1 + y),
          static_cast<float>(box.x2 + x), static_cast<float>(box.y2 + y)};
}

bool is_cut(const metrics::Corners& box, const tiles::TileRect& tile,
            int64_t image_height, int64_t image_width) {
  const auto left = static_cast<float>(tile.x);
  const auto top = static_cast<float>(tile.y);
  const auto right = static_cast<float>(tile.x + tile.width);
  const auto bottom = static_cast<float>(tile.y + tile.height);
  return (tile.x > 0 && box.x1 < left + kCutBorder) ||
         (tile.y > 0 && box.y1 < top + kCutBorder) ||
         (tile.x + tile.width < image_width && box.x2 > right - kCutBorder) ||
         (tile.y + tile.height < image_height && box.y2 > bottom - kCutBorder);
}

std::vector<size_t> kept_boxes(const std::vector<TileDetection>& all,
                               const MergeOptions& options) {
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    if (all[a].is_cut != all[b].is_cut) return all[b].is_cut;
    return all[a].detection.confidence > all[b].detection.confidence;
  });
  KeptDetections found;
  std::erase_if(order, [&](size_t index) {
    const TileDetection& one = all[index];
    if (found.repeat(one, options)) return true;
    found.add(one);
    return false;
  });
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return all[a].detection.confidence > all[b].detection.confidence;
  });
  return order;
}

std::vector<metrics::Detection> merge_tiles(
    const std::vector<TileDetection>& all, const MergeOptions& options) {
  std::vector<size_t> kept = kept_boxes(all, options);
  const auto most = static_cast<size_t>(options.max_detections);
  if (kept.size() > most) kept.resize(most);
  std::vector<metrics::Detection> boxes;
  for (const size_t index : kept) boxes.push_back(all[index].detection);
  return boxes;
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
    detection.box = metrics::clipped(
        metrics::to_source(detection.box, input->mapping), input->mapping);
  }
  return detections;
}

std::vector<metrics::Detection> Detector::look_at_tile(
    const tiles::TileRect& tile, const cv::Mat& pixels) {
  std::vector<metrics::Detection> found = look_at(pixels);
  for (metrics::Detection& detection : found) {
    detection.box = moved(detection.box, static_cast<double>(tile.x),
                          static_cast<double>(tile.y));
  }
  return found;
}

MergeOptions Detector::merge_options() const {
  MergeOptions merge;
  merge.iou_threshold = options_.nms.iou_threshold;
  merge.agnostic = options_.nms.agnostic;
  merge.max_detections = options_.nms.max_detections;
  return merge;
}

TileFindings Detector::tiles_of(codecs::ImageSize size) const {
  TileFindings tiles{.size = size, .places = {}, .found = {}};
  tiles.places =
      options_.tiles
          ? tiles::tile_grid(size.height, size.width, options_.tiles->height,
                             options_.tiles->width, options_.tiles->overlap)
          : std::vector<tiles::TileRect>{{0, 0, size.height, size.width}};
  tiles.found.resize(tiles.places.size());
  return tiles;
}

bool Detector::look(const cv::Mat& pixels, TileFindings& tiles,
                    const OnTile& on_tile) {
  for (size_t i = 0; i < tiles.places.size(); ++i) {
    if (tiles.found[i]) continue;
    const tiles::TileRect& tile = tiles.places[i];
    const cv::Rect place(static_cast<int>(tile.x), static_cast<int>(tile.y),
                         static_cast<int>(tile.width),
                         static_cast<int>(tile.height));
    tiles.found[i] =
        look_at_tile(tile, options_.tiles ? pixels(place).clone() : pixels);
    if (!on_tile(i)) return false;
  }
  return true;
}

std::vector<metrics::Detection> Detector::merged(
    const TileFindings& tiles) const {
  if (!options_.tiles) return tiles.found.front().value();
  std::vector<TileDetection> all;
  for (size_t i = 0; i < tiles.places.size(); ++i) {
    for (const metrics::Detection& one : tiles.found[i].value()) {
      all.push_back({one, is_cut(one.box, tiles.places[i], tiles.size.height,
                                 tiles.size.width)});
    }
  }
  return merge_tiles(all, merge_options());
}

std::vector<metrics::Detection> Detector::detect(const cv::Mat& pixels) {
  TileFindings tiles = tiles_of({pixels.rows, pixels.cols});
  look(pixels, tiles, [](size_t) { return true; });
  return merged(tiles);
}

// A file may store its rows from bottom to top, so tiles may not arrive in the
// order of the grid. Findings are stored by index, which keeps the order of
// boxes with equal confidence.
Detector::FileLook Detector::look_in_file(const std::filesystem::path& file,
                                          const codecs::ImageLimits& limits,
                                          TileFindings& tiles,
                                          const OnTile& on_tile) {
  struct Ended {};
  std::vector<tiles::TileRect> wanted;
  std::vector<size_t> indices;
  for (size_t i = 0; i < tiles.places.size(); ++i) {
    if (tiles.found[i]) continue;
    wanted.push_back(tiles.places[i]);
    indices.push_back(i);
  }
  FileLook look;
  try {
    look.reason = tiles::cut_tiles(
        file, wanted, limits, [&](size_t index, const cv::Mat& pixels) {
          const size_t tile = indices[index];
          tiles.found[tile] = look_at_tile(tiles.places[tile],
                                           in_network_samples(pixels, limits));
          if (!on_tile(tile)) throw Ended();
        });
    look.is_whole = look.reason.empty();
  } catch (const Ended&) {
  }
  return look;
}

}  // namespace headroom::detect
