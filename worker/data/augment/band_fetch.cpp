#include "worker/data/augment/band_fetch.h"

#include <cstddef>

namespace headroom::augment {
namespace {

class Tiles {
 public:
  Tiles(const std::vector<TileView>& tiles, int bands, const uint8_t* gray)
      : tiles_(tiles), bands_(bands), gray_(gray) {}

  // Neighbours are mostly in the tile of the last one.
  const uint8_t* pixel_at(int x, int y) {
    if (has(last_, x, y)) return address(last_, x, y);
    for (size_t i = 0; i < tiles_.size(); ++i) {
      if (!has(i, x, y)) continue;
      last_ = i;
      return address(i, x, y);
    }
    return gray_;
  }

 private:
  bool has(size_t i, int x, int y) const {
    if (i >= tiles_.size()) return false;
    const TileView& tile = tiles_[i];
    return x >= tile.begin_x && x < tile.end_x && y >= tile.begin_y &&
           y < tile.end_y;
  }
  const uint8_t* address(size_t i, int x, int y) const {
    const TileView& tile = tiles_[i];
    return tile.pixels + (y - tile.top) * tile.step +
           ptrdiff_t{bands_} * (x - tile.left);
  }

  const std::vector<TileView>& tiles_;
  int bands_;
  const uint8_t* gray_;
  size_t last_ = 0;
};

}  // namespace

void fetch_bands(const std::vector<int>& xs, const std::vector<int>& ys,
                 const std::vector<TileView>& tiles, int bands, uint8_t gray,
                 uint8_t* target) {
  const std::vector<uint8_t> outside(static_cast<size_t>(bands), gray);
  Tiles pixels(tiles, bands, outside.data());
  for (size_t i = 0; i < xs.size(); ++i, target += bands) {
    const int x = xs[i] >> kernels::kPlaceBits,
              y = ys[i] >> kernels::kPlaceBits;
    const int along_x = xs[i] & (kernels::kPlaces - 1),
              along_y = ys[i] & (kernels::kPlaces - 1);
    const uint8_t* const upper_left = pixels.pixel_at(x, y);
    const uint8_t* const upper_right = pixels.pixel_at(x + 1, y);
    const uint8_t* const lower_left = pixels.pixel_at(x, y + 1);
    const uint8_t* const lower_right = pixels.pixel_at(x + 1, y + 1);
    for (int band = 0; band < bands; ++band) {
      target[band] = kernels::blended(upper_left[band], upper_right[band],
                                      lower_left[band], lower_right[band],
                                      along_x, along_y);
    }
  }
}

}  // namespace headroom::augment
