// Tiles out of an image file whose picture is never held: rows go by in a band
// as high as a tile, each file is read once, from top to bottom.
//
//   memory   a band: the tile's height x the picture's width, besides what the
//            format needs (scanline_reader.h); for pictures that are stored on
//            their side, the tile's width x the picture's height
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <opencv2/core/mat.hpp>
#include <span>
#include <string>

#include "worker/data/codecs/image.h"
#include "worker/data/tiles/tile_plan.h"

namespace headroom::tiles {

// The place of a tile of the upright image in the picture as stored. `stored`:
// the size of the latter; orientation 1..8.
TileRect stored_rect(const TileRect& upright, codecs::ImageSize stored,
                     int orientation);

// One rectangle of the upright image, as decode_image has it there.
// Rows above it are passed over and those below not read: damage there is not
// found. `size` of the result is that of the whole image.
codecs::ImageResult cut_window(const std::filesystem::path& file,
                               const TileRect& window,
                               const codecs::ImageLimits& limits = {});

// Why a file is refused that no longer has all of its tiles.
inline constexpr const char* kOtherSize = "its size has changed";

// Calls `take` with the index and the upright pixels (valid during the call) of
// each tile, in the order in which the file has them. Reads to the file's end,
// whatever is wanted. Returns why the file is refused, "" if it is sound; one
// that lacks a tile is refused. `take` may have been called before. What
// `take` throws passes.
std::string cut_tiles(const std::filesystem::path& file,
                      std::span<const TileRect> tiles,
                      const codecs::ImageLimits& limits,
                      const std::function<void(size_t, const cv::Mat&)>& take);

}  // namespace headroom::tiles
