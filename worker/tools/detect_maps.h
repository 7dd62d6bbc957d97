// DetectedMaps: writes the detections in GeoTIFFs with coordinates. An object
// on the seam of a mosaic (worker/detect/mosaic.h) is written once.
//
// Mosaics exist only with --tile: seams of whole pictures are not examined. The
// boxes of a mosaic are written after its last image has been examined. Until
// then the findings in its tiles are kept in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/base/progress.h"
#include "worker/data/codecs/image.h"
#include "worker/detect/detection_folder.h"
#include "worker/detect/detector.h"
#include "worker/detect/map_layers.h"
#include "worker/detect/mosaic.h"
#include "worker/maps/map_api.h"

namespace headroom::tools {

struct SeamTile {
  int64_t mosaic = 0;
  int64_t number = 0, of = 0;  // the tile's index, and the number of tiles
  int64_t height = 0, width = 0;
  int64_t place = 0;                // a digest of the parts' positions
  std::function<cv::Mat()> pixels;  // reads the pixels
};
// Returns the detections in pixels of the tile; nullopt stops the command.
using LookAtSeam = std::function<std::optional<std::vector<metrics::Detection>>(
    const SeamTile&)>;

class DetectedMaps {
 public:
  struct Options {
    detect::MapLayers::Formats formats;
    std::optional<detect::DetectionTiles> tiles;  // nullopt: no mosaics
    detect::MergeOptions merge;
    codecs::ImageLimits limits;
    LookAtSeam look;
  };
  // Keeps references to all arguments but the options. `images`: the run's
  // images.
  DetectedMaps(maps::MapApi& api, detect::DetectionFolder& folder,
               const std::vector<std::string>& class_names,
               const std::vector<std::filesystem::path>& images,
               ToolProgress& progress, Options options);

  void add(size_t index, const detect::ImageDetections& found,
           detect::TileFindings tiles);
  // Call it when an image has no further findings.
  void end_image(size_t index);
  // Completes the layers' files.
  void finish();

 private:
  void find_mosaics();
  void write(const detect::ImageDetections& found);
  // Merges and writes the findings in the mosaic's parts and seams. Images that
  // could not be read are not parts.
  void end_mosaic(size_t index);
  void look_at_seams(size_t index, const detect::Mosaic& mosaic,
                     detect::MosaicFindings& findings);

  const std::vector<std::filesystem::path>& images_;
  ToolProgress& progress_;
  const Options options_;
  detect::MapLayers layers_;
  bool has_begun_ = false;  // whether the first image was added
  std::vector<detect::Mosaic> mosaics_;
  std::map<size_t, size_t> mosaic_of_;  // image -> the mosaic it is a part of
  // The findings in parts of unfinished mosaics, by image.
  std::map<size_t, detect::TileFindings> unmerged_;
};

}  // namespace headroom::tools
