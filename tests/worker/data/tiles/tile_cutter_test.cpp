// Tiles equal those parts of the whole picture, in every format, coding and
// orientation. 16 bits stay 16 bits. Damage anywhere refuses the file.
#include "worker/data/tiles/tile_cutter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <opencv2/core.hpp>
#include <string>
#include <utility>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "worker/data/codecs/exif.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/sampling/random.h"

namespace headroom::tiles {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kHeight = 149;
constexpr int kWidth = 71;

cv::Rect as_cv(const TileRect& rect) {
  return {static_cast<int>(rect.x), static_cast<int>(rect.y),
          static_cast<int>(rect.width), static_cast<int>(rect.height)};
}

class TileCutter : public ::testing::Test {
 protected:
  // Cuts all tiles, some tiles in another order, and tiles with rows between
  // them, and compares each tile with the same part of `whole`.
  void expect_parts_of(const cv::Mat& whole, const fs::path& file,
                       const std::string& name) {
    std::vector<TileRect> all = tile_grid(whole.rows, whole.cols, 40, 25, 0.3);
    const std::vector<TileRect> some = {all[all.size() - 2], all[1]};
    const std::vector<TileRect> rows_apart = {{3, 1, 5, 9}, {60, 2, 5, 30}};
    for (const auto& tiles : {all, some, rows_apart, {}}) {
      std::vector<int> taken(tiles.size(), 0);
      EXPECT_EQ(cut_tiles(file, tiles, {},
                          [&](size_t index, const cv::Mat& pixels) {
                            ++taken[index];
                            EXPECT_TRUE(same_pixels(
                                pixels, whole(as_cv(tiles[index])).clone()))
                                << name << " tile " << index << " of "
                                << tiles.size();
                          }),
                "")
          << name;
      EXPECT_EQ(taken, std::vector<int>(tiles.size(), 1)) << name;
    }
  }

  void expect_parts(const fs::path& file, const std::string& name) {
    const codecs::ImageResult whole = codecs::decode_image(file);
    ASSERT_TRUE(whole.ok()) << name << ": " << whole.reason;
    EXPECT_EQ(codecs::inspect_streamed(file).size, whole.size) << name;
    expect_parts_of(whole.pixels, file, name);
    for (const TileRect& window :
         tile_grid(whole.size.height, whole.size.width, 40, 25, 0.3)) {
      const codecs::ImageResult cut = cut_window(file, window);
      EXPECT_EQ(cut.reason, "") << name;
      EXPECT_EQ(cut.size, whole.size) << name;
      EXPECT_TRUE(same_pixels(cut.pixels, whole.pixels(as_cv(window)).clone()))
          << name << " from " << window.y << ", " << window.x;
    }
  }

  void expect_parts(const std::string& bytes, const std::string& name) {
    expect_parts(folder_.write("image", bytes), name);
  }

  TemporaryFolder folder_;
  const cv::Mat picture_ = test_picture(kHeight, kWidth, 5);
};

TEST_F(TileCutter, JpegInItsForms) {
  for (const auto& [name, form] : jpeg_forms()) {
    expect_parts(encode_jpeg(picture_, form), name);
  }
}

TEST_F(TileCutter, EveryFormat) {
  for (const auto& [name, bytes] : encodings(picture_)) {
    expect_parts(bytes, name);
  }
}

TEST_F(TileCutter, EveryOrientation) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string name = "orientation " + std::to_string(orientation);
    expect_parts(encode_jpeg(picture_, {.orientation = orientation}), name);
    expect_parts(encode_png(picture_, {.orientation = orientation}), name);
    const TiffForm tiff{.orientation = static_cast<uint16_t>(orientation)};
    expect_parts(encode_tiff(picture_, tiff), name);
  }
}

// Values that do not fit into 8 bits.
cv::Mat deep_picture(int channels) {
  cv::Mat pixels(kHeight, kWidth, CV_MAKETYPE(CV_16U, channels));
  auto* value = pixels.ptr<uint16_t>();
  for (size_t i = 0; i < pixels.total() * pixels.channels(); ++i) {
    value[i] = static_cast<uint16_t>(i * 40503 + i / 7);
  }
  return pixels;
}

TEST_F(TileCutter, SixteenBitsStay) {
  for (const int channels : {1, 3}) {
    const cv::Mat deep = deep_picture(channels);
    const fs::path file =
        folder_.write("deep.png", codecs::encode_png_bytes(deep));
    expect_parts_of(deep, file, "png of 16 bits");
  }
  for (const bool tiled : {false, true}) {
    for (const uint16_t compression : {COMPRESSION_NONE, COMPRESSION_LZW}) {
      const cv::Mat deep = times_257(picture_);
      const TiffForm form{.compression = compression, .tiled = tiled};
      expect_parts_of(deep, folder_.write("deep.tif", encode_tiff(deep, form)),
                      tiled ? "tiles" : "strips");
    }
  }
}

TEST_F(TileCutter, GrayPngStaysGray) {
  cv::Mat gray;
  cv::extractChannel(picture_, gray, 1);
  expect_parts_of(
      gray, folder_.write("gray.png", codecs::encode_png_bytes(gray)), "gray");
}

// The whole file must be intact, whichever tiles are requested. In training the
// same holds.
TEST_F(TileCutter, DamageBehindTheLastTileRefusesTheFile) {
  const std::string jpeg = encode_jpeg(picture_, JpegForm{});
  const std::string png = encode_png(picture_);
  const std::vector<TileRect> first = {{0, 0, 8, 8}};
  for (const std::string& bytes : {jpeg, png}) {
    const fs::path file =
        folder_.write("cut", bytes.substr(0, bytes.size() * 3 / 4));
    EXPECT_FALSE(codecs::decode_image(file).ok());
    int taken = 0;
    EXPECT_THAT(
        cut_tiles(file, first, {}, [&](size_t, const cv::Mat&) { ++taken; }),
        HasSubstr("damaged "));
    EXPECT_EQ(taken, 1);
  }
  EXPECT_THAT(cut_tiles(folder_.write("page", "<html>"), first, {},
                        [](size_t, const cv::Mat&) {}),
              HasSubstr("text (HTML or XML), not a JPEG"));
}

// A file that has become smaller since its tiles were planned.
TEST_F(TileCutter, ATileThatTheFileDoesNotHaveRefusesIt) {
  const int below = picture_.rows, beyond = picture_.cols;
  for (const int orientation : {1, 3, 6}) {
    JpegForm form;
    form.orientation = orientation;
    const fs::path file = folder_.write("small", encode_jpeg(picture_, form));
    for (const TileRect& tile :
         {TileRect{below, beyond, 8, 8}, TileRect{0, 0, below + beyond, 8},
          TileRect{0, 0, 8, below + beyond}}) {
      EXPECT_EQ(cut_tiles(file, std::vector{tile}, {},
                          [](size_t, const cv::Mat&) { FAIL(); }),
                kOtherSize);
    }
  }
}

// cut_tiles() accepts the same files as decode_image(), for any bytes.
TEST_F(TileCutter, DamagedFilesGetTheVerdictOfTraining) {
  const fs::path file = folder_.path() / "damaged";
  sampling::RandomStream draws(7, 0, 0,
                               sampling::RandomPurpose::kSyntheticImage);
  codecs::ImageLimits limits;
  limits.max_pixels = 1'000'000;
  int refused = 0, kept = 0;
  for (const auto& [name, sound] : encodings(picture_)) {
    for (int round = 0; round < 30; ++round) {
      std::string bytes = sound;
      const auto length = static_cast<int64_t>(bytes.size());
      // Half of the changes are in the headers.
      const int64_t reach =
          round % 2 == 0 ? std::min<int64_t>(length, 200) : length;
      for (int i = 0; i <= round % 3; ++i) {
        bytes[static_cast<size_t>(draws.below(reach))] =
            static_cast<char>(draws.below(256));
      }
      folder_.write("damaged", bytes);
      const codecs::ImageResult whole = codecs::decode_image(file, limits);
      if (whole.ok()) {
        EXPECT_EQ(codecs::read_image_size(file, limits).size, whole.size)
            << name << " round " << round;
      }
      // A picture too large to be held may be streamed.
      if (whole.reason.find("above the limit") != std::string::npos) continue;
      const std::string reason =
          cut_tiles(file, {}, limits, [](size_t, const cv::Mat&) {});
      EXPECT_EQ(reason.empty(), whole.ok())
          << name << " round " << round << ": '" << reason << "', but '"
          << whole.reason << "'";
      ++(whole.ok() ? kept : refused);
    }
  }
  EXPECT_GT(refused, 80);
  EXPECT_GT(kept, 80);
}

TEST_F(TileCutter, FormatsThatMustBeHeldWholeAreRefusedAboveTheLimit) {
  codecs::ImageLimits limits;
  limits.max_pixels = 3000;  // enough for 40 rows, not the picture
  JpegForm progressive;
  progressive.progressive = true;
  for (const std::string& bytes :
       {encode_jpeg(picture_, progressive),
        encode_png(picture_, {.interlaced = true}), encode_webp(picture_)}) {
    EXPECT_EQ(
        codecs::inspect_streamed(folder_.write("image", bytes), limits).reason,
        "71 x 149 pixels are above the limit of 3000");
  }
  const auto tiles = tile_grid(kHeight, kWidth, 40, 25, 0.3);
  for (const std::string& bytes :
       {encode_jpeg(picture_, JpegForm{}), encode_png(picture_),
        encode_bmp(picture_)}) {
    const fs::path file = folder_.write("image", bytes);
    EXPECT_TRUE(codecs::inspect_streamed(file, limits).ok());
    size_t taken = 0;
    EXPECT_EQ(cut_tiles(file, tiles, limits,
                        [&](size_t, const cv::Mat&) { ++taken; }),
              "");
    EXPECT_EQ(taken, tiles.size());
  }
  // Only one strip, or one row of tiles, is held at a time.
  const fs::path tiff = folder_.write("made.tif", encode_tiff(picture_));
  EXPECT_TRUE(codecs::inspect_streamed(tiff, limits).ok());
  limits.max_pixels = 7 * kWidth - 1;  // a strip has 7 rows
  EXPECT_EQ(codecs::inspect_streamed(tiff, limits).reason,
            "71 x 7 pixels are above the limit of 496");
}

TEST(StoredRect, IsWhereTheUprightTileComesFrom) {
  cv::Mat stored(5, 7, CV_32S);
  for (int i = 0; i < 35; ++i) stored.at<int>(i / 7, i % 7) = i;
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const cv::Mat whole = codecs::upright(stored.clone(), orientation);
    const TileRect tile{1, 2, 3, 2};
    const TileRect from = stored_rect(tile, {5, 7}, orientation);
    const cv::Mat part =
        codecs::upright(stored(as_cv(from)).clone(), orientation);
    EXPECT_TRUE(same_pixels(part, whole(as_cv(tile)).clone())) << orientation;
  }
}

}  // namespace
}  // namespace headroom::tiles
