// Tiling: a data set of large images as a data set of tiles that training takes
// as it is.
//
//   DIR/images/SPLIT/STEM_Y_X.jpg   JPEG of quality 95 where the image is JPEG,
//                                   else .png with as many bits as were read;
//                                   .tif where it has other bands than gray
//                                   or RGB (tiff_file.h), with all of them, or
//                                   other samples than PNG, or coordinates on
//                                   a map, which the tile has, too (geo_tags.h)
//   DIR/labels/SPLIT/STEM_Y_X.txt   boxes of the tile; polygons were read as
//                                   their bounding boxes
//   DIR/data.yaml
//
// Y and X: where the tile begins, in pixels of the upright image. Boxes follow
// the rules of training before they are cut (box_rules.h); an image that cannot
// be read is left out with its tiles, and named.
//
// Everything is written into a folder beside DIR that becomes DIR at the end:
// whatever happens before, there is no DIR. The number of threads changes no
// byte.
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
  // Asked before each tile is written: true ends with Error (exit 130).
  std::function<bool()> stopped = [] { return false; };
};

struct TiledSplit {
  labels::DataReport report;      // the images that were cut, and their faults
  int64_t in_grid = 0;            // tiles that these images have
  int64_t without_box = 0;        // tiles of the grid with no part of a box
  int64_t tiles = 0;              // written
  int64_t empty_tiles = 0;        // written tiles without a box
  int64_t boxes = 0;              // boxes in the tiles
  int64_t lost_boxes = 0;         // the images' boxes that are in no tile
  int64_t images_with_alpha = 0;  // TIFFs that call samples so
};

// Train, val and, where there is one, test. Throws Error: exit 2 if the folder
// is not empty, exit 4 for unknown classes, sources that cannot be read, and
// train or val without a box, exit 5 if DIR cannot be written.
std::vector<TiledSplit> tile_data(const configs::DataConfig& config,
                                  const TilingRequest& request);

// What people read of it.
std::string tiling_text(const std::vector<TiledSplit>& splits);
// What programs read of it: one document.
std::string tiling_json(const std::vector<TiledSplit>& splits,
                        const std::filesystem::path& output);

}  // namespace headroom::tiles
