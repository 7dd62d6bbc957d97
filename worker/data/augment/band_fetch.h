// A row of a warped picture of any number of bands: RowKernels::fetch
// (row_kernels.h), which knows three, with the same arithmetic, so that a band
// has the bytes that it would have as a colour.
//
// Threads: any; a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/augment/row_kernels.h"

namespace headroom::augment {

// target[bands * i ..] = the pixel at (xs[i], ys[i]), in 32nds of a pixel.
// Tiles do not overlap, and have as many bands; `gray` where none is.
// REQUIRES: as many places in x as in y.
void fetch_bands(const std::vector<int>& xs, const std::vector<int>& ys,
                 const std::vector<TileView>& tiles, int bands, uint8_t gray,
                 uint8_t* target);

}  // namespace headroom::augment
