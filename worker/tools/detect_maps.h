// DetectedMaps: what detect finds in GeoTIFFs, written with coordinates, and
// each object on the seams of a mosaic (worker/detect/mosaic.h) once.
//
// Mosaics are those of --tile: seams of whole pictures are not looked at, and
// boxes of each would only be lost there. A mosaic's boxes are written when the
// last of its images was looked at. What its parts' tiles show is held until
// then.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/detect/detection_folder.h"
#include "worker/detect/detector.h"
#include "worker/detect/map_layers.h"
#include "worker/detect/mosaic.h"
#include "worker/maps/map_api.h"
#include "worker/tools/tool_progress.h"

namespace headroom::tools {

struct SeamTile {
  int64_t mosaic = 0;
  int64_t number = 0, of = 0;  // the tile's, and how many there are
  int64_t height = 0, width = 0;
  int64_t place = 0;                // a digest of where its mosaic's parts lie
  std::function<cv::Mat()> pixels;  // reads them
};
// What is found in the tile, in its pixels; none ends the work.
using LookAtSeam = std::function<std::optional<std::vector<metrics::Detection>>(
    const SeamTile&)>;

class DetectedMaps {
 public:
  struct Options {
    detect::MapLayers::Formats formats;
    std::optional<detect::DetectionTiles> tiles;  // none: no mosaics
    detect::MergeOptions merge;
    codecs::ImageLimits limits;
    LookAtSeam look;
  };
  // Borrows all but the options. `images`: all that will be looked at.
  DetectedMaps(maps::MapApi& api, detect::DetectionFolder& folder,
               const std::vector<std::string>& class_names,
               const std::vector<std::filesystem::path>& images,
               ToolProgress& progress, Options options);

  void add(size_t index, const detect::ImageDetections& found,
           detect::TileFindings tiles);
  // No more of that image will come.
  void end_image(size_t index);
  // Writes the layers.
  void finish();

 private:
  void find_mosaics();
  void write(const detect::ImageDetections& found);
  // Merges what its parts and seams show; parts that were left out are none.
  void end_mosaic(size_t index);
  void look_at_seams(size_t index, const detect::Mosaic& mosaic,
                     detect::MosaicFindings& findings);

  const std::vector<std::filesystem::path>& images_;
  ToolProgress& progress_;
  const Options options_;
  detect::MapLayers layers_;
  bool has_begun_ = false;  // an image has come
  std::vector<detect::Mosaic> mosaics_;
  std::map<size_t, size_t> mosaic_of_;  // images that are parts of one
  // What parts of mosaics that are not merged yet show, by image.
  std::map<size_t, detect::TileFindings> unmerged_;
};

}  // namespace headroom::tools
