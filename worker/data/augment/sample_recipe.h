// SampleRecipe: what is left to do for a sample once all is drawn and its
// images are loaded. No draw, file or label is in it; who follows it, and where
// (render_sample() here, sample_packing.h for a device), changes no byte.
//
//   tiles on a canvas -> warp [-> mixed with a second canvas's] -> pixel
//   changes -> HSV -> upside down -> mirrored
//
// Ownership: a value; shares its tiles' pixels, which are not written to, with
// whoever loaded them.
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

// Tiles that do not overlap, gray around them; in memory is what of them the
// rows that are made can touch.
struct PictureRecipe {
  std::vector<PlacedTile> tiles;
  Warp warp;
};

struct SampleRecipe {
  int64_t width = 0;  // of the sample
  int bands = codecs::kColours;
  bool has_colours = true;  // else neither gray, CLAHE nor HSV
  // Before it is turned upside down: the rows that are made, and those of them
  // that are kept.
  codecs::PixelRows made, kept;
  PictureRecipe picture;
  std::optional<PictureRecipe> mixed_in;
  double ratio = 1;  // of the first picture
  PixelChanges changes;
  HsvGains gains{1, 1, 1};
  bool upside_down = false;
  bool mirrored = false;
};

// Makes the sample's pixels on the CPU: the lines to keep, in memory of
// their own. Tiles are released as soon as they have been used.
cv::Mat render_sample(SampleRecipe recipe);

}  // namespace headroom::augment
