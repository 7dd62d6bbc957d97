// Boxes of a picture that is mirrored.
#pragma once

#include <vector>

#include "worker/data/labels/pixel_box.h"

namespace headroom::augment {

void flip_left_right(std::vector<labels::NormalizedBox>& boxes);
void flip_up_down(std::vector<labels::NormalizedBox>& boxes);

}  // namespace headroom::augment
