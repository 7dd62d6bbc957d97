// label_bound: the most boxes that one sample of a training run can have, from
// the data set's labels and the augmentation.
//
// A mosaic joins four images, and mixup two mosaics, whichever they are: the
// most crowded image counts as often as it can be drawn.
//
// Threads: a pure function.
#pragma once

#include <cstdint>

#include "configs/run_config.h"

namespace headroom {

// `most_in_an_image`: of the data set.
int64_t most_boxes_of_a_sample(const RunConfig& config,
                               int64_t most_in_an_image);

}  // namespace headroom
