// SampleRecipe: the steps that remain for a sample after its draws are made and
// its images are loaded. It contains no random draw, file or label. A CPU
// (render_sample()) and a device (sample_packing.h) compute the same bytes from
// it.
//
//   tiles on a canvas -> warp [-> mixed with a second canvas's] -> pixel
//   changes -> HSV -> upside down -> mirrored
//
// The tiles share their pixels with the image cache, and are never written.
#pragma once

#include <cstdint>
#include <opencv2/core/mat.hpp>
#include <optional>
#include <vector>

#include "worker/data/augment/affine.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/augment/pixel_changes.h"
#include "worker/data/codecs/image.h"

namespace headroom::augment {

// Tiles that do not overlap, on a gray background. They contain all pixels that
// the computed rows can read.
struct PictureRecipe {
  std::vector<PlacedTile> tiles;
  Warp warp;
};

struct SampleRecipe {
  int64_t width = 0;        // width of the sample
  int type = CV_8UC3;       // type of the sample's pixels
  bool has_colours = true;  // if false: no gray, CLAHE or HSV
  // The rows that are computed, and the part of them that is kept, both counted
  // before the sample is turned upside down.
  codecs::PixelRows made, kept;
  PictureRecipe picture;
  std::optional<PictureRecipe> mixed_in;
  double ratio = 1;  // weight of the first picture
  PixelChanges changes;
  HsvGains gains;
  bool upside_down = false;
  bool mirrored = false;
};

// Computes the rows `kept` of the sample on the CPU, in newly allocated memory.
// Frees each picture's tiles as soon as they have been used.
cv::Mat render_sample(SampleRecipe recipe);

}  // namespace headroom::augment
