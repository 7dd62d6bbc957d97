#include "worker/data/augment/flip.h"

namespace headroom::augment {

void flip_left_right(std::vector<labels::NormalizedBox>& boxes) {
  for (labels::NormalizedBox& box : boxes) box.cx = 1 - box.cx;
}

void flip_up_down(std::vector<labels::NormalizedBox>& boxes) {
  for (labels::NormalizedBox& box : boxes) box.cy = 1 - box.cy;
}

}  // namespace headroom::augment
