// Tiling: cuts a data set of large images into a data set of tiles that can be
// trained on as it is.
//
//   DIR/images/SPLIT/STEM_Y_X.jpg   JPEG of quality 95 if the image is JPEG;
//                                   else .png with as many bits as were read;
//                                   .tif if the image has bands other than gray
//                                   or RGB (tiff_file.h), all of them kept, or
//                                   samples that PNG cannot hold, or map
//                                   coordinates, which the tile keeps
//                                   (geo_tags.h)
//   DIR/labels/SPLIT/STEM_Y_X.txt   boxes of the tile; polygons are reduced to
//                                   their bounding boxes
//   DIR/data.yaml
//
// Y and X are the position of the tile's first pixel in the upright image.
// Boxes are checked and repaired as in training before they are cut
// (box_rules.h). An image that cannot be read is left out with all its tiles
// and is reported.
//
// Everything is written into a folder beside DIR, which is renamed to DIR at
// the end. If anything fails before that, DIR does not exist. The result does
// not depend on the number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "configs/data_config.h"
#include "worker/data/labels/data_report.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/tiles/tile_plan.h"

namespace headroom::tiles {

inline constexpr int kTileJpegQuality = 95;

struct TilingRequest {
  std::filesystem::path output;  // must not exist, or be an empty folder
  TileOptions tiles;
  labels::IndexOptions index;
  // Called before each tile is written; if it returns true, tile_data() throws
  // Error (exit 130).
  std::function<bool()> stopped = [] { return false; };
};

struct TiledSplit {
  labels::DataReport report;      // the images that were cut, and their faults
  int64_t in_grid = 0;            // tiles in the grids of these images
  int64_t without_box = 0;        // tiles of the grid with no part of a box
  int64_t tiles = 0;              // tiles written
  int64_t empty_tiles = 0;        // written tiles without a box
  int64_t boxes = 0;              // boxes in the tiles
  int64_t lost_boxes = 0;         // boxes of the images that are in no tile
  int64_t images_with_alpha = 0;  // TIFFs with samples marked alpha
};

// Tiles train, val and, if the data file names it, test. Throws Error: exit 2
// if the folder is not empty; exit 4 for unknown classes, sources that cannot
// be read, and train or val without a box; exit 5 if DIR cannot be written.
std::vector<TiledSplit> tile_data(const configs::DataConfig& config,
                                  const TilingRequest& request);

// The summary for people.
std::string tiling_text(const std::vector<TiledSplit>& splits);
// The summary for programs: one JSON document.
std::string tiling_json(const std::vector<TiledSplit>& splits,
                        const std::filesystem::path& output);

}  // namespace headroom::tiles
