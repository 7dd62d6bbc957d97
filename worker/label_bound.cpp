#include "worker/label_bound.h"

namespace headroom {

int64_t most_boxes_of_a_sample(const RunConfig& config,
                               int64_t most_in_an_image) {
  constexpr int64_t kImagesOfAMosaic = 4;
  constexpr int64_t kMosaicsOfAMixup = 2;
  if (config.rect || config.hyp.mosaic <= 0) return most_in_an_image;
  const int64_t of_a_mosaic = kImagesOfAMosaic * most_in_an_image;
  return config.hyp.mixup > 0 ? kMosaicsOfAMixup * of_a_mosaic : of_a_mosaic;
}

}  // namespace headroom
