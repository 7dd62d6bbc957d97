// Cuts tiles out of an image file without holding the whole picture. A band as
// high as a tile moves over the picture; each file is read once, from top to
// bottom.
//
//   memory   a band: the tile's height x the picture's width (for pictures that
//            are stored on their side, the tile's width x the picture's
//            height), and the memory of the format's reader (scanline_reader.h)
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

// The position of a tile of the upright image in the picture as stored.
// `stored` is the size of the stored picture; orientation is 1..8.
TileRect stored_rect(const TileRect& upright, codecs::ImageSize stored,
                     int orientation);

// Decodes one rectangle of the upright image, with the pixels that decode_image
// gives there. Rows above it are skipped and rows below it are not read, so
// damage there is not found. `size` of the result is that of the whole image.
codecs::ImageResult cut_window(const std::filesystem::path& file,
                               const TileRect& window,
                               const codecs::ImageLimits& limits = {});

// The reason for refusing a file that no longer contains all its tiles.
inline constexpr const char* kOtherSize = "its size has changed";

// Calls `take` for each tile, with its index and its upright pixels (valid
// during the call), in the order of the file. Reads to the end of the file in
// any case. Returns why the file is refused, or "" if it is sound; a file that
// lacks a tile is refused. Even if the file is refused, `take` may have been
// called for some tiles. Exceptions of `take` are passed on.
std::string cut_tiles(const std::filesystem::path& file,
                      std::span<const TileRect> tiles,
                      const codecs::ImageLimits& limits,
                      const std::function<void(size_t, const cv::Mat&)>& take);

}  // namespace headroom::tiles
