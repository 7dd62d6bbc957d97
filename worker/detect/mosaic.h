// Mosaic: adjacent maps as parts of one picture, so that objects on their seams
// are reported once.
//
//   +-------+-------+   Parts have one coordinate reference system and one size
//   |     [ | ]     |   of pixel, and touch or overlap. If two parts share
//   |  A  [ | ]  B  |   fewer pixels than neighbouring tiles do, their seam
//   +-----[-+-]-----+   gets its own tiles, with the pixels of all parts there.
//   |  C  [ | ]  D  |   The findings in all tiles are merged by the rule for
//   +-------+-------+   the tiles of one picture (detector.h).
//
// Pixels of a mosaic are counted from the upper left corner of the area that
// its parts cover. A box belongs to the part in which it was found. If it was
// found in a seam tile, or if its part already has the maximum of detections,
// the box belongs to the first part that contains the centre of the box and has
// fewer than the maximum.
//
// Threads: plain values; a MosaicReader belongs to one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/data/tiles/tile_plan.h"
#include "worker/detect/detector.h"
#include "worker/maps/map_api.h"

namespace headroom::detect {

struct MosaicPart {
  size_t image = 0;     // index of the part's image
  double x = 0, y = 0;  // corner; whole numbers unless maps are skewed
  int64_t height = 0, width = 0;

  tiles::TileRect rect() const;  // rounded to whole pixels
};

struct Mosaic {
  std::vector<MosaicPart> parts;  // ordered by their images

  bool has_pixels(double x, double y) const;
};

// Finds mosaics among maps.
class MosaicFinder {
 public:
  // Adds a map. Call it with ascending `image`.
  void add(size_t image, const maps::MapPlace& place);

  // Returns the mosaics of two or more parts. Maps of the same area, for
  // example of two years, are not parts of one picture: a map that repeats an
  // earlier map is left out, unless the earlier one was left out itself. Calls
  // `on_repeat` with the two maps.
  std::vector<Mosaic> find(
      const std::function<void(size_t repeat, size_t earlier)>& on_repeat)
      const;

 private:
  // Maps of one reference system and one size of pixel.
  struct Kind {
    maps::MapPlace first;
    std::vector<MosaicPart> parts;  // relative to the first map's corner
  };
  std::vector<Kind> kinds_;
};

// The tiles across the mosaic's seams, each once.
std::vector<tiles::TileRect> seam_tiles(const Mosaic& mosaic,
                                        const DetectionTiles& tiles);

// Reads rectangles of a mosaic from the files of its parts. A pixel comes from
// the first part that has data at this position (by its GDAL_NODATA), and is
// gray outside all parts. Two parts that overlap by at least as much as two
// adjacent tiles have no seam tiles, so an object on the edge of their data is
// found as two objects. The reader keeps the rows of each part that the last
// rectangle needed.
class MosaicReader {
 public:
  // `files`: the files of all images, by MosaicPart::image.
  MosaicReader(const Mosaic& mosaic,
               const std::vector<std::filesystem::path>& files,
               const codecs::ImageLimits& limits)
      : mosaic_(mosaic), files_(files), limits_(limits) {}

  // Throws Error (exit 4) if a file can no longer be read.
  cv::Mat read(const tiles::TileRect& rect);

 private:
  struct Band {
    codecs::PixelRows rows;
    cv::Mat pixels;
    // The samples of a pixel without data; empty if the file does not define
    // them.
    std::vector<int> no_data;
  };
  const Band& band_of(size_t part, codecs::PixelRows rows);

  const Mosaic& mosaic_;
  const std::vector<std::filesystem::path>& files_;
  const codecs::ImageLimits& limits_;
  std::map<size_t, Band> bands_;  // bands of the parts in the last rectangle
};

// The findings in each part's tiles, in pixels of the part, and in each seam
// tile, in pixels of the tile.
struct MosaicFindings {
  std::vector<TileFindings> parts;
  std::vector<tiles::TileRect> seams;
  std::vector<std::vector<metrics::Detection>> on_seams;
};

// The boxes of each part, in pixels of the part (boxes may extend beyond it),
// by descending confidence, at most options.max_detections per part.
std::vector<std::vector<metrics::Detection>> merge_mosaic(
    const Mosaic& mosaic, const MosaicFindings& findings,
    const MergeOptions& options);

}  // namespace headroom::detect
