// Changes of pixels that move nothing: mean and median of a neighbourhood,
// colour taken away, brightness spread (CLAHE), in this order.
//
// Of OpenCV's operators those are used whose 8-bit results are whole-number
// arithmetic or not compiled for one kind of processor, so that a sample has
// the same bytes everywhere.
//
// Threads: any.
#pragma once

#include <opencv2/core/mat.hpp>

#include "configs/run_config.h"
#include "worker/data/sampling/random.h"

namespace headroom::augment {

struct PixelChanges {
  int blur = 0;  // side of the neighbourhood: 3, 5 or 7; 0: none
  int median_blur = 0;
  bool gray = false;
  double clahe = 0;  // clip limit, 1 to 4; 0: none

  // Does a row depend on others?
  bool needs_all_rows() const {
    return blur > 0 || median_blur > 0 || clahe > 0;
  }
  bool operator==(const PixelChanges&) const = default;
};

// What has probability 0 takes no draw: without any of them every other draw of
// a sample stays what it was.
PixelChanges draw_pixel_changes(const configs::Hyperparameters& hyp,
                                sampling::RandomStream& draws);

// In place, uint8. Without colours only neighbourhoods are changed. REQUIRES:
// the whole sample where needs_all_rows(); colours are RGB.
void change_pixels(cv::Mat& pixels, const PixelChanges& changes,
                   bool has_colours = true);

}  // namespace headroom::augment
