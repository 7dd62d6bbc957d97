// Mosaic: maps that lie side by side as parts of one picture, whose objects at
// the seams are reported once.
//
//   +-------+-------+   Parts have one coordinate reference system and one size
//   |     [ | ]     |   of pixel, and touch or overlap. A seam between two that
//   |  A  [ | ]  B  |   share fewer pixels than neighbouring tiles do gets
//   +-----[-+-]-----+   tiles of its own, across it, with the pixels of all
//   |  C  [ | ]  D  |   parts there. By the rule of one picture's tiles
//   +-------+-------+   (detector.h), what all of them show is then merged.
//
// Pixels of a mosaic are counted from the upper left corner of what its parts
// cover. A box belongs to the part that it was seen in; one of a seam, and one
// whose part has its most detections, to the first part with room that holds
// its centre.
//
// Threads: plain values; MosaicReader belongs to one thread.
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
  size_t image = 0;     // its place among the images
  double x = 0, y = 0;  // its corner; whole pixels but for maps that lie askew
  int64_t height = 0, width = 0;

  tiles::TileRect rect() const;  // whole pixels
};

struct Mosaic {
  std::vector<MosaicPart> parts;  // images rise

  bool has_pixels(double x, double y) const;
};

// Finds mosaics among maps.
class MosaicFinder {
 public:
  // REQUIRES: images rise.
  void add(size_t image, const maps::MapPlace& place);

  // Those of two parts and more. Maps that show the same place, of two years
  // perhaps, are no parts of one picture: a map that repeats an earlier one is
  // left out, unless that one was left out itself. `on_repeat` is told the two
  // of them.
  std::vector<Mosaic> find(
      const std::function<void(size_t repeat, size_t earlier)>& on_repeat)
      const;

 private:
  // Maps of one system and one size of pixel.
  struct Kind {
    maps::MapPlace first;
    std::vector<MosaicPart> parts;  // the first one's corner is 0, 0
  };
  std::vector<Kind> kinds_;
};

// The tiles across the mosaic's seams, each once.
std::vector<tiles::TileRect> seam_tiles(const Mosaic& mosaic,
                                        const DetectionTiles& tiles);

// Reads rectangles of a mosaic out of its parts' files. Each pixel is that of
// the first part that has data there, by its GDAL_NODATA; it is gray where
// there is no part. Parts that overlap by more than tiles do have no seam
// tiles: an object across the border of their data is two. The reader holds as
// many rows of each part as the last rectangle had.
class MosaicReader {
 public:
  // `files`: of all images.
  MosaicReader(const Mosaic& mosaic,
               const std::vector<std::filesystem::path>& files,
               const codecs::ImageLimits& limits)
      : mosaic_(mosaic), files_(files), limits_(limits) {}

  // Throws Error (exit 4) where a file cannot be read any more.
  cv::Mat read(const tiles::TileRect& rect);

 private:
  struct Band {
    codecs::PixelRows rows;
    cv::Mat pixels;
    // The samples of a pixel that is none; empty if the file names none.
    std::vector<int> no_data;
  };
  const Band& band_of(size_t part, codecs::PixelRows rows);

  const Mosaic& mosaic_;
  const std::vector<std::filesystem::path>& files_;
  const codecs::ImageLimits& limits_;
  std::map<size_t, Band> bands_;  // parts that the last rectangle has
};

// What was found: in each part's tiles, in the part's pixels, and in each seam
// tile, in the tile's.
struct MosaicFindings {
  std::vector<TileFindings> parts;
  std::vector<tiles::TileRect> seams;
  std::vector<std::vector<metrics::Detection>> on_seams;
};

// The boxes of each part, in its pixels, which may lie partly outside of it: in
// descending confidence, at most options.max_detections a part.
std::vector<std::vector<metrics::Detection>> merge_mosaic(
    const Mosaic& mosaic, const MosaicFindings& findings,
    const MergeOptions& options);

}  // namespace headroom::detect
