// gray_images: a data set of uniformly gray square pictures with small boxes,
// written as files, for tests that need a real loader.
#pragma once

#include <cstdint>
#include <filesystem>

#include "worker/data/labels/dataset.h"

namespace headroom {

// Creates `folder`; the files must exist as long as the data set is used. Each
// image has `boxes` boxes, whose classes are among `num_classes`.
labels::Dataset gray_images(const std::filesystem::path& folder, int64_t count,
                            int64_t side, int64_t boxes, int64_t num_classes);

}  // namespace headroom
