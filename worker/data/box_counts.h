// box_counts: how many boxes the images of a split have, from their label
// files alone: no image is opened, so thousands take a fraction of a second.
// (Of formats with pixels, images' headers are read too.)
//
// An image that cannot be decoded counts here and is left out of training.
//
// Threads: a function; it starts some of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/data_config.h"
#include "worker/data/dataset.h"

namespace headroom {

// By rising path; images whose labels cannot be read are left out. Throws Error
// with exit 4 if the split has no image.
std::vector<int64_t> count_boxes(const DataConfig& config, Split split,
                                 const IndexOptions& options);

}  // namespace headroom
