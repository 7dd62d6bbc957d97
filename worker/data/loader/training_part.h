// --fraction: the part of the training images that a run uses.
#pragma once

#include "configs/run_config.h"
#include "worker/data/labels/dataset.h"

namespace headroom::loader {

// Keeps max(1, round(fraction * size)) images of `dataset`, in its order. A
// permutation of the seed chooses them, so they are the same on every rank.
// Throws Error (exit 4) if they have no box.
void take_fraction(const configs::RunConfig& config, labels::Dataset& dataset);

}  // namespace headroom::loader
