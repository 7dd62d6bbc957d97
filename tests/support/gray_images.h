// gray_images: a data set of uniformly gray square pictures with small boxes,
// written as files, for tests that need a real loader.
#pragma once

#include <cstdint>
#include <filesystem>

#include "worker/data/labels/dataset.h"

namespace headroom {

// `folder` is made; the files must stay while the data set is used. Of
// `num_classes` classes; `boxes` in each image.
labels::Dataset gray_images(const std::filesystem::path& folder, int64_t count,
                            int64_t side, int64_t boxes, int64_t num_classes);

}  // namespace headroom
