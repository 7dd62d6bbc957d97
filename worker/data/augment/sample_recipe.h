// SampleRecipe: what is left to do for a sample once its draws are made and its
// images are loaded. It holds no draw, file or label: a CPU (render_sample())
// and a device (sample_packing.h) make the same bytes of it.
//
//   tiles on a canvas -> warp [-> mixed with a second canvas's] -> pixel
//   changes -> HSV -> upside down -> mirrored
//
// Its tiles share their pixels with whoever loaded them and never write them.
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

// Tiles that do not overlap, gray around them. They hold the pixels that the
// made rows can touch.
struct PictureRecipe {
  std::vector<PlacedTile> tiles;
  Warp warp;
};

struct SampleRecipe {
  int64_t width = 0;        // the sample's
  int type = CV_8UC3;       // its pixels' type
  bool has_colours = true;  // else neither gray, CLAHE nor HSV
  // The rows that are made, and the part of them that is kept, before the
  // sample is turned upside down.
  codecs::PixelRows made, kept;
  PictureRecipe picture;
  std::optional<PictureRecipe> mixed_in;
  double ratio = 1;  // the first picture's share
  PixelChanges changes;
  HsvGains gains{1, 1, 1};
  bool upside_down = false;
  bool mirrored = false;
};

// Makes those rows of the sample that are kept, on the CPU, in memory of their
// own. Tiles are released as soon as they have been used.
cv::Mat render_sample(SampleRecipe recipe);

}  // namespace headroom::augment
