// measured_range: computes the range of values for `range: {percentiles: [p,
// q]}` of a data.yaml. It is measured once, before a run starts. The result is
// stored in the run's configuration (RunConfig::value_range), so that every
// rank, layout and resume uses the same range.
//
// Reads at most kMeasuredImages images, spread evenly over the split, and at
// most kMeasuredPixels pixels of each image, in evenly spread rows. So a large
// data set takes no longer than a small one. Pixels that are NaN, or have the
// value that their TIFF names in GDAL_NODATA, do not count. The rank of a
// percentile is rounded to the nearest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "configs/range_wish.h"
#include "worker/data/labels/dataset.h"

namespace headroom::labels {

inline constexpr int64_t kMeasuredImages = 256;
inline constexpr int64_t kMeasuredPixels = 4096;

// Throws Error (exit 4) if no image can be read or both percentiles have the
// same value. REQUIRES: wish.is_measured().
ValueRanges measured_range(const Dataset& dataset,
                           const configs::RangeWish& wish, int64_t num_threads);

// If some of the images have more than 8 bits, describes which, and which range
// contains most of their values; else returns "". Looks at up to eight images,
// evenly spread. `how` says how they are read, for example "reduced to 8".
std::string note_on_deep_images(
    const std::vector<std::filesystem::path>& images, const std::string& how);

}  // namespace headroom::labels
