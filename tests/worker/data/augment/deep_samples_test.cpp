// Augmentation of 16-bit images: each change moves and blends levels as it does
// in 8-bit images, with 257 times the resolution. Changes of colour are
// switched off.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <opencv2/core.hpp>
#include <vector>

#include "tests/worker/data/augment/sample_fixture.h"
#include "tests/worker/data/encoders.h"
#include "worker/data/augment/warp_map.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/loader/image_store.h"
#include "worker/data/tiles/random_crop.h"

namespace headroom::augment {
namespace {

class DeepSamples : public SampleFixture,
                    public ::testing::WithParamInterface<int> {
 protected:
  // Images of 8 bits, the same images times 257, or these with random low bits.
  enum class Kind { kBytes, kWide, kDeep };

  static Draw draw(Kind kind) {
    return [kind](codecs::ImageSize size, int64_t sample) {
      const auto seed = static_cast<uint64_t>(10 * sample);
      const cv::Mat bytes =
          test_bands(size.height, size.width, GetParam(), seed);
      if (kind == Kind::kBytes) return bytes;
      const cv::Mat wide = times_257(bytes);
      if (kind == Kind::kWide) return wide;
      cv::Mat low = test_bands(size.height, size.width, GetParam(), seed + 5);
      low.convertTo(low, CV_16U);
      return cv::Mat(cv::max(wide, 255) - low);
    };
  }
  static int type_of(Kind kind) {
    return CV_MAKETYPE(kind == Kind::kBytes ? CV_8U : CV_16U, GetParam());
  }
  NetworkSample made(Kind kind, int64_t sample,
                     const configs::Hyperparameters& hyp) const {
    return with_pixels(planned(draw(kind), type_of(kind), sample, hyp));
  }

  // Computes a level of the warped picture in double: interpolated from the
  // four neighbours of the source position, gray outside of tiles.
  static double fetched(const PictureRecipe& picture,
                        const kernels::WarpInverse& warp, int x, int64_t y,
                        int band);
};

double DeepSamples::fetched(const PictureRecipe& picture,
                            const kernels::WarpInverse& warp, int x, int64_t y,
                            int band) {
  const kernels::FetchPlace place =
      kernels::fetch_place(warp, static_cast<int>(kWidth), x, y);
  const auto level_at = [&](int column, int row) -> double {
    for (const PlacedTile& tile : picture.tiles) {
      if (!tile.seen.contains({column, row})) continue;
      return tile.pixels.ptr<uint16_t>(
          row -
          tile.origin
              .y)[(column - tile.origin.x) * tile.pixels.channels() + band];
    }
    return 114 * 257;
  };
  const int column = place.x >> kernels::kPlaceBits;
  const int row = place.y >> kernels::kPlaceBits;
  const double right = (place.x & 31) / 32.0, below = (place.y & 31) / 32.0;
  return (1 - below) * ((1 - right) * level_at(column, row) +
                        right * level_at(column + 1, row)) +
         below * ((1 - right) * level_at(column, row + 1) +
                  right * level_at(column + 1, row + 1));
}

// The samples cover warps, mosaics of four and of nine, mixup and flips.
TEST_P(DeepSamples, AreTheFloatReferenceRounded) {
  configs::Hyperparameters hyp = everything();
  hyp.copy_paste = 0;  // copy-paste merges all tiles into one
  int mixed = 0, mosaics = 0;
  for (int64_t sample = 0; sample < 40; ++sample) {
    const PlannedSample plan =
        planned(draw(Kind::kDeep), type_of(Kind::kDeep), sample, hyp);
    const SampleRecipe& recipe = plan.recipe;
    mixed += recipe.mixed_in ? 1 : 0;
    mosaics += recipe.picture.tiles.size() > 1 ? 1 : 0;
    const WarpMap first(recipe.picture.warp.matrix, static_cast<int>(kWidth));
    const WarpMap second(
        recipe.mixed_in ? recipe.mixed_in->warp.matrix : cv::Matx33d::eye(),
        static_cast<int>(kWidth));
    const cv::Mat pixels = with_pixels(plan).pixels;
    ASSERT_EQ(pixels.type(), CV_16UC(GetParam()));
    double worst = 0;
    for (int y = 0; y < pixels.rows; ++y) {
      for (int x = 0; x < pixels.cols; ++x) {
        const int from_x = recipe.mirrored ? pixels.cols - 1 - x : x;
        const int from_y = recipe.upside_down ? pixels.rows - 1 - y : y;
        for (int band = 0; band < GetParam(); ++band) {
          double level =
              fetched(recipe.picture, first.inverse(), from_x, from_y, band);
          if (recipe.mixed_in) {
            level =
                recipe.ratio * level +
                (1 - recipe.ratio) * fetched(*recipe.mixed_in, second.inverse(),
                                             from_x, from_y, band);
          }
          worst = std::max(
              worst,
              std::abs(level - pixels.ptr<uint16_t>(y)[x * GetParam() + band]));
        }
      }
    }
    EXPECT_LE(worst, recipe.mixed_in ? 1.5 : 0.5) << sample;
  }
  EXPECT_GT(mixed, 5);
  EXPECT_GT(mosaics, 20);
}

// The samples also cover copy-paste and blurs. The 16-bit samples request
// changes of colour, which must not be applied.
TEST_P(DeepSamples, GoWhereEightBitsGo) {
  configs::Hyperparameters hyp = everything();
  hyp.blur = hyp.median_blur = 0.5;
  for (int64_t sample = 0; sample < 40; ++sample) {
    const NetworkSample bytes = made(Kind::kBytes, sample, hyp);
    configs::Hyperparameters colourful = hyp;
    colourful.hsv_h = colourful.hsv_s = colourful.hsv_v = 0.7;
    const NetworkSample wide = made(Kind::kWide, sample, colourful);
    EXPECT_EQ(wide.boxes, bytes.boxes);
    const cv::Mat expected = times_257(bytes.pixels);
    // The tolerance is one 8-bit level for the truncation in mixup, and half a
    // level for each rounding.
    EXPECT_LE(
        cv::norm(wide.pixels.reshape(1), expected.reshape(1), cv::NORM_INF),
        2.5 * 257)
        << sample;
  }
  // No pixels are blended, so nothing is rounded.
  configs::Hyperparameters moves;
  moves.scale = moves.translate = 0;
  moves.mosaic = moves.degrees = moves.shear = moves.perspective = 0;
  moves.hsv_h = moves.hsv_s = moves.hsv_v = 0;
  moves.flipud = 0.5;
  moves.median_blur = 0.5;  // the median is one of the levels
  for (int64_t sample = 0; sample < 20; ++sample) {
    EXPECT_TRUE(
        same_pixels(made(Kind::kWide, sample, moves).pixels,
                    times_257(made(Kind::kBytes, sample, moves).pixels)))
        << sample;
  }
}

TEST_P(DeepSamples, RowsOfASampleAreThoseOfTheWhole) {
  configs::Hyperparameters hyp = everything();
  hyp.blur = 0.3;
  expect_rows_of_the_whole(draw(Kind::kDeep), type_of(Kind::kDeep), hyp);
}

INSTANTIATE_TEST_SUITE_P(Bands, DeepSamples, ::testing::Values(3, 1, 5),
                         ::testing::PrintToStringParamName());

// Files of 16 bits are loaded through the store that caches them, and as
// windows.
TEST(DeepFiles, AreLoadedRememberedResizedAndCut) {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "images");
  cv::Mat small = test_picture(30, 40, 1), large = test_picture(100, 150, 2);
  for (cv::Mat* picture : {&small, &large}) {
    picture->convertTo(*picture, CV_16U, 251, 17);
  }
  folder.write("images/1.png", codecs::encode_png_bytes(small));
  write_tiff(folder.path() / "images/2.tif", large);
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n");
  labels::IndexOptions index;
  index.limits.ranges = {{0, 65535}};
  const labels::Dataset dataset = indexed_images(folder, "images", index);
  ASSERT_EQ(dataset.size(), 2);
  loader::ImageStore::Options options;
  options.height = options.width = 64;
  options.limits = index.limits;
  // The cache has room for one of the two images, of 64 x 48 and 64 x 43
  // pixels.
  options.cache_bytes = 48 * 64 * 3 * 2;
  loader::ImageStore store(dataset, options);
  const std::vector<cv::Mat> sources = {small, large};
  for (int64_t sample = 0; sample < 2; ++sample) {
    const LoadedImage image = store.load(sample, codecs::kAllRows);
    EXPECT_EQ(image.fault, "");
    ASSERT_EQ(image.pixels.type(), CV_16UC3);
    EXPECT_TRUE(same_pixels(
        image.pixels,
        resize_loaded(sources[static_cast<size_t>(sample)],
                      {image.pixels.rows, image.pixels.cols}, true)));
    EXPECT_EQ(store.remembers(sample), sample == 0);
  }
  tiles::RandomCrops crops(dataset, store, {0, 0, 1}, 64, 64, index.limits);
  const tiles::TileRect window = crops.window_of(1);
  EXPECT_TRUE(same_pixels(crops.load(1, codecs::kAllRows).pixels,
                          large(cv::Rect(static_cast<int>(window.x),
                                         static_cast<int>(window.y), 64, 64))));
}

}  // namespace
}  // namespace headroom::augment
