// measured_range: the range of values that {percentiles: [p, q]} of a data.yaml
// comes to, measured once, before a run starts: its definition keeps the
// numbers (RunConfig::value_range), so that every rank, layout and resume has
// the same.
//
// At most kMeasuredImages images are looked at, evenly spread over the split,
// and of each at most kMeasuredPixels pixels of evenly spread rows: a large
// data set takes as long as a small one. Pixels that are NaN, or what their
// TIFF's GDAL_NODATA names, do not count. The rank of a percentile is rounded
// to the nearest.
#pragma once

#include <cstdint>

#include "configs/range_wish.h"
#include "worker/data/labels/dataset.h"

namespace headroom::labels {

inline constexpr int64_t kMeasuredImages = 256;
inline constexpr int64_t kMeasuredPixels = 4096;

// Throws Error (exit 4): no image can be read, or both percentiles are one
// value. REQUIRES: wish.is_measured().
ValueRanges measured_range(const Dataset& dataset,
                           const configs::RangeWish& wish, int64_t num_threads);

}  // namespace headroom::labels
