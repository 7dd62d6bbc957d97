// Augmentation of 16 bits: each change moves and blends levels as it does those
// of 8 bits, with 257 times the resolution; changes of colour are left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <opencv2/core.hpp>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "tests/worker/data/made_images.h"
#include "worker/data/augment/augment.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/augment/warp_map.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/loader/image_store.h"
#include "worker/data/tiles/random_crop.h"

namespace headroom::augment {
namespace {

constexpr int64_t kSamples = 6, kHeight = 64, kWidth = 96;

class TypedImages : public MadeImages {
 public:
  TypedImages(LoadImage make, int type)
      : MadeImages(std::move(make)), type_(type) {}
  int type() const override { return type_; }

 private:
  const int type_;
};

class DeepSamples : public testing::TestWithParam<int> {
 protected:
  // Images of 8 bits, those times 257, or those with random low bits.
  enum class Kind { kBytes, kWide, kDeep };

  LoadImage load(Kind kind) const {
    return [this, kind](int64_t sample) {
      LoadedImage image;
      image.source = {static_cast<int32_t>(100 + 10 * sample), 120};
      const codecs::ImageSize size = fit_size(image.source, kHeight, kWidth);
      const auto seed = static_cast<uint64_t>(10 * sample);
      image.pixels = test_bands(size.height, size.width, GetParam(), seed);
      if (kind != Kind::kBytes) {
        image.pixels.convertTo(image.pixels, CV_16U, 257);
      }
      if (kind == Kind::kDeep) {
        cv::Mat low = test_bands(size.height, size.width, GetParam(), seed + 5);
        low.convertTo(low, CV_16U);
        image.pixels = cv::max(image.pixels, 255) - low;
      }
      image.labels = labels_;
      image.outlines = {ends_, 0, points_.data()};
      return image;
    };
  }
  PlannedSample planned(Kind kind, int64_t sample,
                        const configs::Hyperparameters& hyp,
                        codecs::PixelRows rows = {0, kHeight}) const {
    const int depth = kind == Kind::kBytes ? CV_8U : CV_16U;
    TypedImages images(load(kind), CV_MAKETYPE(depth, GetParam()));
    return plan_mosaic_sample({1, 0, sample}, kSamples, kHeight, kWidth, rows,
                              hyp, images);
  }
  NetworkSample made(Kind kind, int64_t sample,
                     const configs::Hyperparameters& hyp,
                     codecs::PixelRows rows = {0, kHeight}) const {
    return with_pixels(planned(kind, sample, hyp, rows));
  }

  const std::vector<labels::BoxLabel> labels_{{0, 0.3f, 0.3f, 0.2f, 0.2f}};
  const std::vector<uint64_t> ends_{3};
  const std::vector<labels::IndexedPoint> points_{
      {0.2f, 0.2f}, {0.4f, 0.2f}, {0.3f, 0.4f}};
};

configs::Hyperparameters everything() {
  configs::Hyperparameters hyp;
  hyp.degrees = 10;
  hyp.shear = 3;
  hyp.perspective = 0.0005;
  hyp.flipud = hyp.mixup = 0.5;
  hyp.mosaic = 0.8;
  hyp.mosaic9 = 0.3;
  hyp.copy_paste = 0.6;
  hyp.hsv_h = hyp.hsv_s = hyp.hsv_v = 0;
  return hyp;
}

// A level of a picture, in double: from the four neighbours of the position,
// gray outside of tiles.
double fetched(const PictureRecipe& picture, const kernels::WarpInverse& warp,
               int x, int64_t y, int band) {
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

// For all draws: warps, mosaics of four and nine, mixed pictures, flips.
TEST_P(DeepSamples, AreTheFloatReferenceRounded) {
  configs::Hyperparameters hyp = everything();
  hyp.copy_paste = 0;  // it makes one tile of all
  int mixed = 0, mosaics = 0;
  for (int64_t sample = 0; sample < 40; ++sample) {
    const PlannedSample plan = planned(Kind::kDeep, sample, hyp);
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

// Also with pasting and blurs; changes of colour are requested, and applied to
// neither.
TEST_P(DeepSamples, GoWhereEightBitsGo) {
  configs::Hyperparameters hyp = everything();
  hyp.blur = hyp.median_blur = 0.5;
  for (int64_t sample = 0; sample < 40; ++sample) {
    const NetworkSample bytes = made(Kind::kBytes, sample, hyp);
    configs::Hyperparameters colourful = hyp;
    colourful.hsv_h = colourful.hsv_s = colourful.hsv_v = 0.7;
    const NetworkSample wide = made(Kind::kWide, sample, colourful);
    EXPECT_EQ(wide.boxes, bytes.boxes);
    cv::Mat expected;
    bytes.pixels.convertTo(expected, CV_16U, 257);
    // One level of 8 bits for the truncation in mixup, half of one for each
    // rounding.
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
    cv::Mat expected;
    made(Kind::kBytes, sample, moves).pixels.convertTo(expected, CV_16U, 257);
    EXPECT_EQ(cv::norm(made(Kind::kWide, sample, moves).pixels.reshape(1),
                       expected.reshape(1), cv::NORM_INF),
              0)
        << sample;
  }
}

TEST_P(DeepSamples, RowsOfASampleAreThoseOfTheWhole) {
  configs::Hyperparameters hyp = everything();
  hyp.blur = 0.3;
  for (int64_t sample = 0; sample < 20; ++sample) {
    const cv::Mat whole = made(Kind::kDeep, sample, hyp).pixels;
    for (const codecs::PixelRows rows :
         {codecs::PixelRows{0, 16}, codecs::PixelRows{48, 64}}) {
      const cv::Mat part = made(Kind::kDeep, sample, hyp, rows).pixels;
      EXPECT_EQ(cv::norm(part.reshape(1),
                         whole
                             .rowRange(static_cast<int>(rows.begin),
                                       static_cast<int>(rows.end))
                             .clone()
                             .reshape(1),
                         cv::NORM_INF),
                0)
          << sample;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bands, DeepSamples, testing::Values(3, 1, 5),
                         testing::PrintToStringParamName());

// Means and medians of every size, against their definitions.
TEST(DeepNeighbourhoods, AreMeansAndMedians) {
  cv::Mat picture = test_bands(17, 23, 2, 3);
  picture.convertTo(picture, CV_16U, 257, 31);
  for (const int side : {3, 5, 7}) {
    cv::Mat mean = picture.clone(), median = picture.clone();
    change_pixels(mean, {.blur = side}, /*has_colours=*/false);
    change_pixels(median, {.median_blur = side}, /*has_colours=*/false);
    for (const auto& [y, x] :
         std::vector<std::pair<int, int>>{{8, 11}, {7, 9}, {3, 19}}) {
      for (int band = 0; band < 2; ++band) {
        std::vector<double> around;
        for (int dy = -side / 2; dy <= side / 2; ++dy) {
          for (int dx = -side / 2; dx <= side / 2; ++dx) {
            around.push_back(
                picture.ptr<uint16_t>(y + dy)[2 * (x + dx) + band]);
          }
        }
        double sum = 0;
        for (const double level : around) sum += level;
        EXPECT_NEAR(mean.ptr<uint16_t>(y)[2 * x + band],
                    sum / static_cast<double>(around.size()), 0.5);
        std::sort(around.begin(), around.end());
        EXPECT_EQ(median.ptr<uint16_t>(y)[2 * x + band],
                  around[around.size() / 2]);
      }
    }
  }
}

// Files of 16 bits through the store that caches them, and as windows.
TEST(DeepFiles, AreLoadedRememberedResizedAndCut) {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "images");
  cv::Mat small = test_picture(30, 40, 1), large = test_picture(100, 150, 2);
  for (cv::Mat* picture : {&small, &large}) {
    picture->convertTo(*picture, CV_16U, 251, 17);
  }
  folder.write("images/1.png", codecs::encode_png_bytes(small));
  write_bands(folder.path() / "images/2.tif", large, {.rgb = true});
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n");
  labels::IndexOptions index;
  index.limits.ranges = {{0, 65535}};
  const labels::Dataset dataset =
      labels::index_dataset(data_config(folder, folder.path() / "images"),
                            labels::Split::kTrain, index)
          .dataset;
  ASSERT_EQ(dataset.size(), 2);
  loader::ImageStore::Options options;
  options.height = options.width = 64;
  options.limits = index.limits;
  // Room for one of them, of 64 x 48 pixels and 64 x 43.
  options.cache_bytes = 48 * 64 * 3 * 2;
  loader::ImageStore store(dataset, options);
  const std::vector<cv::Mat> sources = {small, large};
  for (int64_t sample = 0; sample < 2; ++sample) {
    const LoadedImage image = store.load(sample, codecs::kAllRows);
    EXPECT_EQ(image.fault, "");
    ASSERT_EQ(image.pixels.type(), CV_16UC3);
    EXPECT_EQ(
        cv::norm(image.pixels,
                 resize_loaded(sources[static_cast<size_t>(sample)],
                               {image.pixels.rows, image.pixels.cols}, true),
                 cv::NORM_INF),
        0);
    EXPECT_EQ(store.remembers(sample), sample == 0);
  }
  tiles::RandomCrops crops(dataset, store, {0, 0, 1}, 64, 64, index.limits);
  const tiles::TileRect window = crops.window_of(1);
  EXPECT_EQ(cv::norm(crops.load(1, codecs::kAllRows).pixels,
                     large(cv::Rect(static_cast<int>(window.x),
                                    static_cast<int>(window.y), 64, 64)),
                     cv::NORM_INF),
            0);
}

}  // namespace
}  // namespace headroom::augment
