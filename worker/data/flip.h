// Boxes of a picture that is mirrored.
#pragma once

#include <vector>

#include "worker/data/pixel_box.h"

namespace headroom {

void flip_left_right(std::vector<NormalizedBox>& boxes);
void flip_up_down(std::vector<NormalizedBox>& boxes);

}  // namespace headroom
