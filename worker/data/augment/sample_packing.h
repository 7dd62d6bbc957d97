// SamplePacking: serialises a recipe for a device that renders it
// (worker/kernels/packed_sample.h). Of the tiles it includes only the
// rectangles that the warp reads.
#pragma once

#include <cstdint>
#include <opencv2/core/types.hpp>
#include <vector>

#include "worker/data/augment/sample_recipe.h"
#include "worker/kernels/pixel_math.h"

namespace headroom::augment {

// Whether a device can render the whole recipe. Devices support neither changes
// that need neighbouring pixels nor conversion to gray.
bool can_be_packed(const SampleRecipe& recipe);

// The recipe of a sample whose pixels are already computed.
SampleRecipe recipe_of(const cv::Mat& pixels);

class SamplePacking {
 public:
  // REQUIRES: can_be_packed(recipe).
  explicit SamplePacking(SampleRecipe recipe);

  // Size of the packed recipe, a multiple of kPackedAlignment.
  int64_t bytes() const { return bytes_; }

  // REQUIRES: `target` has room for bytes() bytes and is aligned to
  // kPackedAlignment.
  void write(uint8_t* target) const;

 private:
  void add(const PictureRecipe& picture);

  struct Tile {
    cv::Mat pixels;  // the pixels of the packed rectangle
    cv::Rect place;
    int64_t offset = 0;
  };
  struct Picture {
    kernels::WarpInverse warp;
    int32_t first_tile = 0, num_tiles = 0;
  };

  SampleRecipe recipe_;
  std::vector<Picture> pictures_;
  std::vector<Tile> tiles_;
  int64_t bytes_ = 0;
};

}  // namespace headroom::augment
