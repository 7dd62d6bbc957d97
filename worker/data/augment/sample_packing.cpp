#include "worker/data/augment/sample_packing.h"

#include <cstring>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "worker/data/augment/warp_map.h"
#include "worker/kernels/packed_sample.h"

namespace headroom::augment {
namespace {

int64_t aligned(int64_t bytes) {
  return round_up(bytes, kernels::kPackedAlignment);
}

// The rectangle of the canvas from which the computed rows take their pixels.
cv::Rect reach_of(const WarpMap& map, codecs::PixelRows rows) {
  if (rows.size() == 0) return {};
  const PixelBounds bounds = map.bounds(rows);
  return {cv::Point(bounds.left, bounds.top),
          cv::Point(bounds.right, bounds.bottom)};
}

}  // namespace

bool can_be_packed(const SampleRecipe& recipe) {
  const PixelChanges& changes = recipe.changes;
  return recipe.kept == recipe.made && !changes.needs_all_rows() &&
         !(changes.gray && recipe.has_colours);
}

SampleRecipe recipe_of(const cv::Mat& pixels) {
  SampleRecipe recipe;
  recipe.width = pixels.cols;
  recipe.type = pixels.type();
  recipe.has_colours = recipe.type == CV_8UC3;
  recipe.made = recipe.kept = {0, pixels.rows};
  recipe.picture.tiles = {
      {pixels, {0, 0}, cv::Rect(cv::Point(0, 0), pixels.size())}};
  return recipe;
}

SamplePacking::SamplePacking(SampleRecipe recipe) : recipe_(std::move(recipe)) {
  HEADROOM_CHECK(can_be_packed(recipe_), "a sample that no device renders");
  add(recipe_.picture);
  if (recipe_.mixed_in) add(*recipe_.mixed_in);
  bytes_ = aligned(
      static_cast<int64_t>(sizeof(kernels::PackedSample) +
                           tiles_.size() * sizeof(kernels::PackedTile)));
  for (Tile& tile : tiles_) {
    tile.offset = bytes_;
    bytes_ += aligned(
        static_cast<int64_t>(tile.pixels.total() * tile.pixels.elemSize()));
  }
}

void SamplePacking::add(const PictureRecipe& picture) {
  const WarpMap map(picture.warp.matrix, static_cast<int>(recipe_.width));
  const cv::Rect reach = reach_of(map, recipe_.made);
  Picture added{map.inverse(), static_cast<int32_t>(tiles_.size()), 0};
  for (const PlacedTile& tile : picture.tiles) {
    const cv::Rect place = tile.seen & reach;
    if (place.empty()) continue;
    tiles_.push_back({tile.pixels(place - tile.origin), place});
    ++added.num_tiles;
  }
  pictures_.push_back(added);
}

void SamplePacking::write(uint8_t* target) const {
  kernels::PackedSample sample = {};
  for (size_t i = 0; i < pictures_.size(); ++i) {
    const Picture& picture = pictures_[i];
    sample.pictures[i] = {picture.warp, picture.first_tile, picture.num_tiles};
  }
  sample.num_pictures = static_cast<int32_t>(pictures_.size());
  sample.ratio = recipe_.ratio;
  sample.first_row = static_cast<int32_t>(recipe_.made.begin);
  sample.has_factors = recipe_.has_colours && changes_colours(recipe_.gains);
  sample.factors = factors_of(recipe_.gains);
  sample.upside_down = recipe_.upside_down;
  sample.mirrored = recipe_.mirrored;
  std::memcpy(target, &sample, sizeof(sample));
  uint8_t* place = target + sizeof(sample);
  for (const Tile& tile : tiles_) {
    const kernels::PackedTile packed = {.pixels = tile.offset,
                                        .left = tile.place.x,
                                        .right = tile.place.br().x,
                                        .top = tile.place.y,
                                        .bottom = tile.place.br().y};
    std::memcpy(place, &packed, sizeof(packed));
    place += sizeof(packed);
  }
  for (const Tile& tile : tiles_) {
    const size_t row_bytes =
        static_cast<size_t>(tile.pixels.cols) * tile.pixels.elemSize();
    for (int y = 0; y < tile.pixels.rows; ++y) {
      std::memcpy(target + tile.offset + static_cast<size_t>(y) * row_bytes,
                  tile.pixels.ptr(y), row_bytes);
    }
  }
}

}  // namespace headroom::augment
