#include "worker/data/augment/sample_recipe.h"

#include <opencv2/core.hpp>

namespace headroom::augment {
namespace {

cv::Mat render_picture(PictureRecipe& picture, const SampleRecipe& recipe) {
  const int width = static_cast<int>(recipe.width);
  cv::Mat pixels =
      is_identity(picture.warp)
          ? place_tiles(picture.tiles, width, recipe.made, recipe.type)
          : warp_tiles(picture.tiles, picture.warp, width, recipe.made,
                       recipe.type);
  picture.tiles.clear();
  return pixels;
}

}  // namespace

cv::Mat render_sample(SampleRecipe recipe) {
  cv::Mat pixels = render_picture(recipe.picture, recipe);
  if (recipe.mixed_in) {
    mix_in(pixels, render_picture(*recipe.mixed_in, recipe), recipe.ratio);
  }
  change_pixels(pixels, recipe.changes, recipe.has_colours);
  if (recipe.kept != recipe.made) {
    const int64_t before = recipe.made.begin;
    pixels = pixels
                 .rowRange(static_cast<int>(recipe.kept.begin - before),
                           static_cast<int>(recipe.kept.end - before))
                 .clone();
  }
  if (recipe.has_colours) jitter_hsv(pixels, recipe.gains);
  if (recipe.upside_down) cv::flip(pixels, pixels, 0);
  if (recipe.mirrored) cv::flip(pixels, pixels, 1);
  return pixels;
}

}  // namespace headroom::augment
