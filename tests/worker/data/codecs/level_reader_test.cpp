// Tests files of 16 bits and of float32. With a range, every kind of file gives
// the levels of the range, as a whole image, as rows and as windows. Without a
// range, 16 bits are reduced to 8, and float32 is refused. A wrong number of
// ranges is refused.
#include "worker/data/codecs/level_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <opencv2/core.hpp>
#include <string>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/sampling/random.h"
#include "worker/data/tiles/tile_cutter.h"

namespace headroom::codecs {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kHeight = 45, kWidth = 37;

ImageLimits limits_of(int bands, const ValueRanges& ranges) {
  ImageLimits limits;
  limits.bands = bands;
  limits.ranges = ranges;
  return limits;
}

// Values over the whole range of the depth.
cv::Mat deep_picture(int depth, int bands, uint64_t seed) {
  sampling::RandomStream draws(seed, 0, 0,
                               sampling::RandomPurpose::kSyntheticImage);
  cv::Mat wide(kHeight, kWidth, CV_64FC(bands));
  const bool is_signed = depth == CV_16S || depth == CV_32F;
  const double most = depth == CV_8U ? 255 : (depth == CV_16S ? 32767 : 65535);
  auto* values = wide.ptr<double>();
  for (size_t i = 0; i < wide.total() * static_cast<size_t>(bands); ++i) {
    values[i] = draws.uniform(is_signed ? -most : 0, most);
  }
  cv::Mat picture;
  wide.convertTo(picture, depth);
  return picture;
}

// Computes the levels that `ranges` give for the picture's colours or bands.
cv::Mat expected_levels(const cv::Mat& picture, const ValueRanges& ranges,
                        int bands) {
  cv::Mat wide;
  picture.convertTo(wide, CV_64F);
  cv::Mat levels(picture.rows, picture.cols, CV_16UC(bands));
  for (int y = 0; y < picture.rows; ++y) {
    for (int x = 0; x < picture.cols; ++x) {
      for (int band = 0; band < bands; ++band) {
        const int from = wide.channels() == 1 ? 0 : band;
        const double value = wide.ptr<double>(y)[x * wide.channels() + from];
        const ValueRange& range = ranges[ranges.size() == 1 ? 0 : band];
        const double share = (value - range.low) / (range.high - range.low);
        levels.ptr<uint16_t>(y)[x * bands + band] = static_cast<uint16_t>(
            std::floor(std::min(std::max(share, 0.0), 1.0) * 65535 + 0.5));
      }
    }
  }
  return levels;
}

// The largest difference of levels; infinity if size or type is wrong.
double difference(const cv::Mat& a, const cv::Mat& b) {
  if (a.type() != b.type() || a.size() != b.size()) return HUGE_VAL;
  return cv::norm(a.reshape(1), b.reshape(1), cv::NORM_INF);
}

class Levels : public ::testing::Test {
 protected:
  void expect_levels(const fs::path& file, const cv::Mat& expected,
                     const ImageLimits& limits, const std::string& name) {
    const ImageResult whole = decode_image(file, limits);
    ASSERT_EQ(whole.reason, "") << name;
    EXPECT_EQ(inspect_image(file, limits).reason, "") << name;
    EXPECT_LE(difference(whole.pixels, expected), 1) << name;
    const cv::Mat rows = decode_rows(file, {11, 30}, limits).pixels;
    EXPECT_EQ(difference(rows, whole.pixels.rowRange(11, 30).clone()), 0)
        << name;
    const cv::Mat window =
        tiles::cut_window(file, {.y = 5, .x = 9, .height = 20, .width = 17},
                          limits)
            .pixels;
    EXPECT_EQ(difference(window, whole.pixels(cv::Rect(9, 5, 17, 20)).clone()),
              0)
        << name;
  }
  fs::path written(const cv::Mat& pixels, TiffForm form = {}) const {
    const fs::path file = folder_.path() / "deep.tif";
    if (pixels.depth() == CV_32F) form.format = SAMPLEFORMAT_IEEEFP;
    if (pixels.depth() == CV_16S) form.format = SAMPLEFORMAT_INT;
    write_tiff(file, pixels, form);
    return file;
  }

  TemporaryFolder folder_;
  const ValueRanges range_{{1000, 41000}};
};

TEST_F(Levels, OfEveryKindOfTiff) {
  for (const int depth : {CV_8U, CV_16U, CV_16S, CV_32F}) {
    for (const int channels : {1, 3, 5}) {
      for (const bool tiled : {false, true}) {
        for (const bool planar : {false, true}) {
          const TiffForm form{.compression = COMPRESSION_LZW,
                              .tiled = tiled,
                              .planar = planar && channels > 1};
          const int bands = channels == 5 ? 5 : kColours;
          const cv::Mat picture = deep_picture(depth, channels, 3);
          const ValueRanges range =
              depth == CV_8U ? ValueRanges{{20, 900}} : range_;
          expect_levels(
              written(picture, form), expected_levels(picture, range, bands),
              limits_of(bands, range),
              "depth " + std::to_string(depth) + ", " +
                  std::to_string(channels) + " channels" +
                  (tiled ? ", tiled" : "") + (planar ? ", planar" : ""));
        }
      }
    }
  }
}

TEST_F(Levels, OfPngAndOfFilesOfEightBits) {
  for (const int channels : {1, 3}) {
    for (const int depth : {CV_8U, CV_16U}) {
      const cv::Mat picture = deep_picture(depth, channels, 4);
      expect_levels(folder_.write("deep.png", encode_png_bytes(picture)),
                    expected_levels(picture, range_, kColours),
                    limits_of(kColours, range_), "PNG");
    }
  }
  const cv::Mat colours = test_picture(kHeight, kWidth, 5);
  const ValueRanges bytes{{0, 255}};
  for (const std::string& file : {encode_bmp(colours), encode_webp(colours)}) {
    expect_levels(folder_.write("colours", file),
                  expected_levels(colours, bytes, kColours),
                  limits_of(kColours, bytes), "8 bits");
  }
}

// The whole range of 16 bits changes no value, and a narrower one keeps values
// apart.
TEST_F(Levels, KeepEveryValueApart) {
  cv::Mat all(256, 256, CV_16U);
  for (int i = 0; i < 65536; ++i) {
    all.ptr<uint16_t>()[i] = static_cast<uint16_t>(i);
  }
  const fs::path file = folder_.write("all.png", encode_png_bytes(all));
  const auto levels_of = [&](const ValueRange& range) {
    const cv::Mat colours =
        decode_image(file, limits_of(kColours, {range})).pixels;
    cv::Mat levels;
    cv::extractChannel(colours, levels, 1);
    return levels;
  };
  EXPECT_EQ(difference(levels_of({0, 65535}), all), 0);
  const cv::Mat narrow = levels_of({30000, 34000});
  for (int value = 30000; value < 34000; ++value) {
    EXPECT_LT(narrow.ptr<uint16_t>()[value], narrow.ptr<uint16_t>()[value + 1]);
  }
  EXPECT_EQ(narrow.ptr<uint16_t>()[29999], 0);
  EXPECT_EQ(narrow.ptr<uint16_t>()[65535], 65535);
}

TEST_F(Levels, HaveARangeForEachBandAndAreTurned) {
  const cv::Mat picture = deep_picture(CV_16U, 4, 6);
  const ValueRanges ranges{{0, 65535}, {100, 200}, {3e4, 4e4}, {-5e4, 5e4}};
  const ImageLimits limits = limits_of(4, ranges);
  const cv::Mat levels = expected_levels(picture, ranges, 4);
  expect_levels(written(picture), levels, limits, "4 ranges");
  const ImageResult result = decode_image(
      written(picture, {.orientation = ORIENTATION_RIGHTTOP}), limits);
  EXPECT_EQ(result.size, (ImageSize{kWidth, kHeight}));
  cv::Mat upright = transposed(levels);
  cv::flip(upright, upright, 1);
  EXPECT_LE(difference(result.pixels, upright), 1);
}

TEST_F(Levels, NonNumbersAreRefusedForAnyRows) {
  cv::Mat picture = deep_picture(CV_32F, 2, 7);
  picture.ptr<float>(20)[2 * 9] = std::numeric_limits<float>::infinity();
  const ImageLimits limits = limits_of(2, range_);
  const fs::path sound = written(picture);
  EXPECT_EQ(decode_image(sound, limits).pixels.ptr<uint16_t>(20)[2 * 9], 65535);
  picture.ptr<float>(31)[2 * 8 + 1] = std::nanf("");
  const fs::path file = written(picture);
  const std::string reason =
      "the value in row 31, column 8 is no number (NaN): fill such places, "
      "for example with gdal_fillnodata";
  for (const PixelRows rows : {kAllRows, PixelRows{0, 3}, PixelRows{40, 45}}) {
    EXPECT_EQ(decode_rows(file, rows, limits).reason, reason);
  }
}

TEST_F(Levels, AnotherNumberOfRangesIsRefused) {
  const fs::path file = written(deep_picture(CV_16U, 4, 8));
  EXPECT_EQ(decode_image(file, limits_of(4, {{0, 1}, {0, 2}})).reason,
            "range has 2 pairs, but images have 4 bands: write one pair for "
            "all in data.yaml, or one for each band");
}

TEST_F(Levels, WithoutARangeSixteenBitsAreReducedAndFloatsRefused) {
  const fs::path png =
      folder_.write("deep.png", encode_png_bytes(deep_picture(CV_16U, 3, 9)));
  EXPECT_EQ(decode_image(png).pixels.type(), CV_8UC3);
  EXPECT_TRUE(has_deep_samples(png));
  EXPECT_FALSE(has_deep_samples(
      folder_.write("a.bmp", encode_bmp(test_picture(9, 9, 1)))));
  for (const int bands : {1, 3, 5}) {
    const fs::path file = written(deep_picture(CV_32F, bands, 9));
    EXPECT_TRUE(has_deep_samples(file));
    ImageLimits limits;
    limits.bands = bands == 5 ? 5 : kColours;
    for (const std::string& reason :
         {decode_image(file, limits).reason, inspect_image(file, limits).reason,
          tiles::cut_window(file, {0, 0, 9, 9}, limits).reason}) {
      EXPECT_THAT(reason, HasSubstr("range: [low, high]"));
    }
  }
}

// Levels are shown as colours of 8 bits; a plain gray picture of bands is shown
// in the same gray.
TEST_F(Levels, AreShownStretched) {
  const cv::Mat colours = test_picture(kHeight, kWidth, 10);
  cv::Mat levels;
  colours.convertTo(levels, CV_16U, 257);
  EXPECT_TRUE(same_pixels(shown_colours(levels), colours));
  EXPECT_TRUE(same_pixels(shown_colours(plain_picture(4, 5, CV_16UC(5), 114)),
                          plain_picture(4, 5, CV_8UC3, 114)));
}

TEST(ValueRangeText, IsReadBack) {
  const ValueRanges ranges{{-0.1, 1e-7}, {100, 9000}};
  EXPECT_EQ(parse_value_ranges(to_text(ranges)), ranges);
  EXPECT_EQ(to_text({{0, 4095}}), "0,4095");
  EXPECT_EQ(parse_value_ranges(""), ValueRanges());
  for (const char* wrong : {"1", "2,1", "1,1", "1,nan", "1,inf", "1,2,3", "a,b",
                            "1, 2", "1,2;3,4"}) {
    EXPECT_FALSE(parse_value_ranges(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace headroom::codecs
