// box_counts: how many boxes the images of a split have, from their label
// files alone: no image is opened, so thousands take a fraction of a second.
// (Of formats with pixels, images' headers are read too.) Or from an index that
// is there anyway; the counts are the same.
//
// An image that cannot be decoded counts here and is left out of training.
//
// Threads: a function; it starts some of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "configs/data_config.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/labels/label_reader.h"

namespace headroom::labels {

// Of one image; nothing if its labels cannot be read.
std::optional<ImageBoxes> count_boxes(const SplitImage& image,
                                      const codecs::ImageLimits& limits);

struct BoxCounts {
  // Of each image; images whose labels cannot be read are left out.
  std::vector<int64_t> boxes;
  int64_t polygons = 0;  // of all these boxes
};

// By rising path. Throws Error with exit 4 if the split has no image.
BoxCounts count_boxes(const configs::DataConfig& config, Split split,
                      const IndexOptions& options);

// The images that cannot be decoded come last.
BoxCounts count_boxes(const IndexedDataset& indexed);

}  // namespace headroom::labels
