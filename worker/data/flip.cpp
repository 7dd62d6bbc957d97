#include "worker/data/flip.h"

namespace headroom {

void flip_left_right(std::vector<NormalizedBox>& boxes) {
  for (NormalizedBox& box : boxes) box.cx = 1 - box.cx;
}

void flip_up_down(std::vector<NormalizedBox>& boxes) {
  for (NormalizedBox& box : boxes) box.cy = 1 - box.cy;
}

}  // namespace headroom
