// render_sample: a sample's pixels from its recipe, on the CPU.
//
// Threads: any.
#pragma once

#include <opencv2/core/mat.hpp>

#include "worker/data/augment/sample_recipe.h"

namespace headroom::augment {

// The rows that are kept x width; not shared. Lets go of tiles as soon as they
// have been used.
cv::Mat render_sample(SampleRecipe recipe);

}  // namespace headroom::augment
