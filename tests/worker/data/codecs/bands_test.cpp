// Tests TIFFs of any number of bands. Every form of file gives the samples that
// were written, as a whole image, as rows, as windows and as tiles. A file
// whose number of bands differs from the model's is refused with both numbers.
// Damage and giant sizes are refused before memory is allocated for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <opencv2/core.hpp>
#include <string>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/labels/verification.h"
#include "worker/data/tiles/tile_cutter.h"

namespace headroom::codecs {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ImageLimits of_bands(int bands) {
  ImageLimits limits;
  limits.bands = bands;
  return limits;
}

// The photometric tag, without and with the mark that the first three bands are
// colours.
constexpr std::array<uint16_t, 2> kColourMark{PHOTOMETRIC_MINISBLACK,
                                              PHOTOMETRIC_RGB};

std::vector<TiffForm> all_forms() {
  std::vector<TiffForm> forms;
  for (const uint16_t compression :
       {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE}) {
    for (const bool tiled : {false, true}) {
      for (const bool planar : {false, true}) {
        for (const bool big : {false, true}) {
          forms.push_back({.compression = compression,
                           .tiled = tiled,
                           .planar = planar,
                           .big = big,
                           .photometric = kColourMark[big ? 1 : 0]});
        }
      }
    }
  }
  return forms;
}

class Bands : public ::testing::Test {
 protected:
  fs::path written(const cv::Mat& pixels, const TiffForm& form = {}) const {
    const fs::path file = folder_.path() / "bands.tif";
    write_tiff(file, pixels, form);
    return file;
  }
  std::string reason(const fs::path& file, int bands) const {
    const ImageResult result = decode_image(file, of_bands(bands));
    EXPECT_EQ(result.ok(), !result.pixels.empty());
    EXPECT_EQ(inspect_image(file, of_bands(bands)).reason, result.reason);
    return result.reason;
  }

  TemporaryFolder folder_;
};

TEST_F(Bands, EveryFormHasTheSamplesThatWereWritten) {
  for (const int bands : {2, 4, 5, 13}) {
    const cv::Mat picture = test_bands(45, 37, bands, 5);
    for (const TiffForm& form : all_forms()) {
      if (form.photometric == PHOTOMETRIC_RGB && bands < 3) continue;
      for (const bool wide : {false, true}) {
        const fs::path file =
            written(wide ? times_257(picture) : picture, form);
        const std::string name =
            std::to_string(bands) + " bands, compression " +
            std::to_string(form.compression) + (form.tiled ? " tiled" : "") +
            (form.planar ? " planar" : "") + (wide ? " wide" : "");
        ASSERT_EQ(reason(file, bands), "") << name;
        EXPECT_TRUE(
            same_pixels(decode_image(file, of_bands(bands)).pixels, picture))
            << name;
        const ImageResult any = decode_image(file, of_bands(kAnyBands));
        EXPECT_TRUE(same_pixels(any.pixels, picture)) << name << any.reason;
      }
    }
  }
}

TEST_F(Bands, SixteenBitsAreRoundedAsThoseOfColours) {
  cv::Mat wide(16, 4096, CV_16UC(5));
  for (int i = 0; i < 16 * 4096; ++i) {
    for (int band = 0; band < 5; ++band) {
      wide.ptr<uint16_t>()[5 * i + band] = static_cast<uint16_t>(i);
    }
  }
  const cv::Mat bands = decode_image(written(wide), of_bands(5)).pixels;
  cv::Mat colours(16, 4096, CV_16UC3);
  const int pairs[] = {0, 0, 1, 1, 2, 2};
  cv::mixChannels(&wide, 1, &colours, 1, pairs, 3);
  const cv::Mat as_ever = decode_image(written(colours)).pixels;
  EXPECT_TRUE(same_pixels(shown_colours(bands), as_ever));
}

TEST_F(Bands, RowsWindowsAndOrientationsArePartsOfTheWhole) {
  const cv::Mat picture = test_bands(83, 71, 5, 9);
  for (uint16_t orientation = 1; orientation <= 8; ++orientation) {
    for (const bool wide : {false, true}) {
      for (const bool tiled : {false, true}) {
        const TiffForm form{
            .orientation = orientation, .tiled = tiled, .planar = tiled};
        const fs::path file =
            written(wide ? times_257(picture) : picture, form);
        const cv::Mat whole = decode_image(file, of_bands(5)).pixels;
        // Each band is rotated as a gray picture is.
        cv::Mat band, turned;
        cv::extractChannel(picture, band, 3);
        const fs::path gray = folder_.path() / "gray.tif";
        write_tiff(gray, band, {.orientation = orientation});
        cv::extractChannel(whole, turned, 3);
        EXPECT_TRUE(
            same_pixels(shown_colours(turned), decode_image(gray).pixels))
            << orientation;
        for (const PixelRows rows :
             {PixelRows{0, 1}, PixelRows{5, 40}, PixelRows{60, 99}}) {
          const PixelRows there = clamp_rows(rows, whole.rows);
          EXPECT_TRUE(same_pixels(decode_rows(file, rows, of_bands(5)).pixels,
                                  rows_of(whole, there)));
        }
        tiles::TileRect window;
        window.y = 12;
        window.x = 20;
        window.height = 30;
        window.width = 41;
        EXPECT_TRUE(
            same_pixels(tiles::cut_window(file, window, of_bands(5)).pixels,
                        whole(cv::Rect(20, 12, 41, 30))));
        EXPECT_EQ(
            tiles::cut_tiles(
                file, std::vector<tiles::TileRect>{window}, of_bands(kAnyBands),
                [&](size_t, const cv::Mat& tile) {
                  const cv::Mat part = whole(cv::Rect(20, 12, 41, 30));
                  EXPECT_TRUE(
                      same_pixels(tile, wide ? times_257(part) : part.clone()))
                      << orientation;
                }),
            "");
      }
    }
  }
}

TEST_F(Bands, OtherBandsThanTheModelsAreRefusedWithBothNumbers) {
  const fs::path five = written(test_bands(20, 30, 5, 1));
  EXPECT_EQ(reason(five, 4),
            "5 bands, but the model's ch is 4: use a model with ch: 5, or "
            "images of 4 bands");
  EXPECT_EQ(reason(five, kColours),
            "5 bands, but the model's ch is 3 or 1: use a model with ch: 5, or "
            "images of colours");
  const fs::path png =
      folder_.write("a.png", encode_png(test_picture(20, 30, 1)));
  EXPECT_EQ(reason(png, 5),
            "colours (PNG), but the model's ch is 5: use a model with ch: 3, "
            "or TIFFs of 5 bands");
  EXPECT_EQ(tiles::cut_window(png, {}, of_bands(5)).reason, reason(png, 5));
  const fs::path gray = written(test_bands(20, 30, 1, 1));
  EXPECT_EQ(reason(gray, 2),
            "1 band, but the model's ch is 2: use a model with ch: 1, or "
            "images of 2 bands");
}

TEST_F(Bands, FourSamplesAreBandsOrColoursWithAlpha) {
  const cv::Mat four = test_bands(20, 30, 4, 1);
  TiffForm form{.photometric = PHOTOMETRIC_RGB};
  // The fourth sample is not marked as alpha. A model of colours reads the
  // first three as RGB.
  fs::path file = written(four, form);
  EXPECT_TRUE(same_pixels(decode_image(file).pixels, shown_colours(four)));
  EXPECT_TRUE(same_pixels(decode_image(file, of_bands(4)).pixels, four));
  EXPECT_TRUE(
      same_pixels(decode_image(file, of_bands(kAnyBands)).pixels, four));
  // The fourth sample is marked as alpha. The file has four bands only if four
  // bands are requested.
  form.extra = EXTRASAMPLE_ASSOCALPHA;
  file = written(four, form);
  EXPECT_TRUE(same_pixels(decode_image(file, of_bands(4)).pixels, four));
  EXPECT_EQ(decode_image(file, of_bands(kAnyBands)).pixels.channels(), 3);
  EXPECT_EQ(decode_image(file).pixels.channels(), 3);
  // The samples are not marked as colours. A model of colours must not read the
  // first of them as gray.
  file = written(four);
  EXPECT_THAT(reason(file, kColours), StartsWith("4 bands, but"));
  // A model of ch: 3 reads three bands that are not marked as colours.
  const cv::Mat three = test_picture(20, 30, 1);
  file = written(three, {.photometric = PHOTOMETRIC_MINISBLACK});
  EXPECT_TRUE(same_pixels(decode_image(file).pixels, three));
}

TEST_F(Bands, OtherSamplesAreRefused) {
  const cv::Mat picture = test_bands(20, 30, 5, 1);
  cv::Mat floats, doubles;
  picture.convertTo(floats, CV_32F);
  picture.convertTo(doubles, CV_64F);
  const TiffForm form{.format = SAMPLEFORMAT_IEEEFP};
  const std::string what =
      " signed or floating bits, but those of 8 and 16 unsigned bits are "
      "read: ";
  EXPECT_EQ(reason(written(floats, form), 5),
            "5 bands of 32" + what +
                "say in data.yaml which values are 0 and 1, range: [low, "
                "high]");
  EXPECT_EQ(reason(written(doubles, form), 5),
            "5 bands of 64" + what + "convert them");
}

// A file with such samples is excluded when the data set is indexed, not during
// training.
TEST_F(Bands, GrayOfOtherSamplesIsRefusedByItsHeader) {
  const cv::Mat picture = test_bands(20, 30, 1, 1);
  cv::Mat numbers, doubles;
  picture.convertTo(numbers, CV_32S);
  picture.convertTo(doubles, CV_64F);
  ImageLimits stored, ranged;
  stored.as_stored = true;
  ranged.ranges = {{0, 255}};
  for (const auto& [samples, format] :
       {std::pair{numbers, SAMPLEFORMAT_UINT},
        std::pair{numbers, SAMPLEFORMAT_INT},
        std::pair{doubles, SAMPLEFORMAT_IEEEFP}}) {
    const fs::path file =
        written(samples, {.format = static_cast<uint16_t>(format)});
    for (const ImageLimits& limits : {ImageLimits(), stored, ranged}) {
      EXPECT_NE(inspect_image(file, limits).reason, "");
      EXPECT_EQ(inspect_image(file, limits).reason,
                decode_image(file, limits).reason);
    }
  }
}

// Returns the offset of a tag's entry in the directory of the first page. An
// entry has 12 bytes.
size_t place_of_tag(const std::string& bytes, uint16_t tag) {
  uint32_t directory = 0;
  std::memcpy(&directory, bytes.data() + 4, 4);
  uint16_t entries = 0;
  std::memcpy(&entries, bytes.data() + directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    uint16_t found = 0;
    std::memcpy(&found, bytes.data() + directory + 2 + 12 * i, 2);
    if (found == tag) return directory + 2 + 12 * i;
  }
  throw std::runtime_error("no such tag");
}

std::string with_number(std::string bytes, uint16_t tag, uint32_t number,
                        size_t size) {
  std::memcpy(bytes.data() + place_of_tag(bytes, tag) + 8, &number, size);
  return bytes;
}

TEST_F(Bands, GiantNumbersAreRefusedBeforeTheyCost) {
  const std::string sound = encode_tiff(test_bands(64, 64, 5, 1));
  for (const int bands : {5, kAnyBands, kColours}) {
    const fs::path file = folder_.write(
        "many.tif", with_number(sound, TIFFTAG_SAMPLESPERPIXEL, 65535, 2));
    EXPECT_NE(decode_image(file, of_bands(bands)).reason, "") << bands;
    EXPECT_NE(inspect_streamed(file, of_bands(bands)).reason, "") << bands;
  }
  // 13,000 x 13,000 pixels are allowed, but not five bands of them.
  std::string large = with_number(sound, TIFFTAG_IMAGEWIDTH, 13000, 2);
  large = with_number(large, TIFFTAG_IMAGELENGTH, 13000, 2);
  const fs::path file = folder_.write("large.tif", large);
  const std::string limit =
      "13000 x 13000 pixels of 5 bands are above the limit of 536870910 "
      "samples";
  EXPECT_EQ(inspect_image(file, of_bands(5)).reason, limit);
  EXPECT_EQ(decode_image(file, of_bands(5)).reason, limit);
  const std::string tile =
      encode_tiff(test_bands(64, 64, 5, 1), {.tiled = true});
  std::string giant = with_number(tile, TIFFTAG_TILEWIDTH, 1 << 15, 2);
  giant = with_number(giant, TIFFTAG_TILELENGTH, 1 << 15, 2);
  EXPECT_THAT(
      decode_image(folder_.write("giant.tif", giant), of_bands(5)).reason,
      HasSubstr("strips or tiles of 5368709120 bytes, above the limit"));
}

TEST_F(Bands, DamageIsNoticed) {
  for (const bool planar : {false, true}) {
    const std::string whole =
        encode_tiff(test_bands(37, 45, 5, 5),
                    {.compression = COMPRESSION_LZW, .planar = planar});
    for (size_t length = 0; length < whole.size();
         length += whole.size() / 60) {
      EXPECT_NE(decode_image(folder_.write("cut.tif", whole.substr(0, length)),
                             of_bands(5))
                    .reason,
                "")
          << length;
    }
  }
}

// Sparse files do not contain all tiles and strips. The missing ones must not
// be read from other bytes of the file.
TEST_F(Bands, UnwrittenTilesAreNotRead) {
  for (const bool tiled : {false, true}) {
    const fs::path file = folder_.path() / "sparse.tif";
    TIFF* tiff = TIFFOpen(file.c_str(), "w");
    ASSERT_NE(tiff, nullptr);
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 64);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 64);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, 5);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    std::vector<uint8_t> part(64 * 64 * 5, 7);
    if (tiled) {
      TIFFSetField(tiff, TIFFTAG_TILEWIDTH, 32);
      TIFFSetField(tiff, TIFFTAG_TILELENGTH, 32);
      TIFFWriteEncodedTile(tiff, 0, part.data(), 32 * 32 * 5);
      TIFFWriteEncodedTile(tiff, 3, part.data(), 32 * 32 * 5);
    } else {
      TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, 32);
      TIFFWriteEncodedStrip(tiff, 1, part.data(), 32 * 64 * 5);
    }
    TIFFClose(tiff);
    EXPECT_THAT(decode_image(file, of_bands(5)).reason,
                HasSubstr(tiled ? "strip or tile 1 has 0 bytes of 5120"
                                : "strip or tile 0 has 0 bytes of 10240"));
  }
}

TEST_F(Bands, TilesAreWrittenAsTheyWereRead) {
  for (const int bands : {2, 4, 5, 300}) {
    for (const bool wide : {false, true}) {
      cv::Mat picture = test_bands(33, 40, bands, 2);
      const fs::path file = folder_.write(
          "tile.tif", encode_tiff_bytes(wide ? times_257(picture) : picture));
      EXPECT_TRUE(
          same_pixels(decode_image(file, of_bands(bands)).pixels, picture))
          << bands;
      EXPECT_EQ(decode_image(file, of_bands(kAnyBands)).reason, "");
    }
  }
}

TEST_F(Bands, VerifyCountsThem) {
  fs::create_directories(folder_.path() / "images");
  write_tiff(folder_.path() / "images/a.tif", test_bands(20, 30, 5, 1));
  write_tiff(folder_.path() / "images/b.tif", test_bands(20, 30, 5, 2));
  folder_.write("images/c.bmp", encode_bmp(test_picture(20, 30, 3)));
  folder_.write("labels/a.txt", "0 .5 .5 .2 .2\n");
  configs::DataConfig config = data_config(folder_, folder_.path() / "images");
  config.val = config.train;
  const auto splits = labels::verify_data(config, {});
  EXPECT_EQ(splits[0].report.num_faults(), 0);
  EXPECT_THAT(
      labels::verification_text(splits, false),
      HasSubstr("train: 1 image has colours (ch: 3 or 1), 2 images have "
                "5 bands (ch: 5); training leaves out what its model "
                "does not read\n"));
  EXPECT_THAT(labels::verification_json(splits), HasSubstr("\"bands\":5"));
  // The report names for each file all values of a model's ch with which the
  // file can be read.
  TiffForm rgb{.photometric = PHOTOMETRIC_RGB};
  write_tiff(folder_.path() / "images/d.tif", test_bands(20, 30, 4, 1), rgb);
  rgb.extra = EXTRASAMPLE_ASSOCALPHA;
  write_tiff(folder_.path() / "images/e.tif", test_bands(20, 30, 4, 1), rgb);
  const TiffForm gray{.extra = EXTRASAMPLE_ASSOCALPHA};
  write_tiff(folder_.path() / "images/f.tif", test_bands(20, 30, 2, 1), gray);
  write_tiff(folder_.path() / "images/g.tif", test_bands(20, 30, 4, 1));
  EXPECT_THAT(
      labels::verification_text(labels::verify_data(config, {}), false),
      HasSubstr("train: 1 image has colours (ch: 3 or 1), 1 image has colours "
                "and alpha (ch: 3, 1 or 2), 1 image has colours and alpha (ch: "
                "3, 1 or 4), 1 image has 4 bands (ch: 4), 1 image has 4 bands "
                "(ch: 3, 1 or 4), 2 images have 5 bands (ch: 5); training"));
  // A model with `bands` bands can read a file only if the report gives that
  // number for the file.
  for (const auto& [name, channels] :
       std::map<std::string, std::vector<int>>{{"c.bmp", {3}},
                                               {"d.tif", {3, 4}},
                                               {"e.tif", {3, 4}},
                                               {"f.tif", {2, 3}},
                                               {"g.tif", {4}}}) {
    for (const int bands : {2, 3, 4, 5}) {
      EXPECT_EQ(
          decode_image(folder_.path() / "images" / name, of_bands(bands)).ok(),
          std::ranges::find(channels, bands) != channels.end())
          << name << " " << bands;
    }
    if (name > "c.bmp") fs::remove(folder_.path() / "images" / name);
  }
  // For a model with 5 bands, indexing skips the RGB image and reports it as a
  // fault.
  labels::IndexOptions options;
  options.limits.bands = 5;
  const labels::IndexedDataset indexed =
      labels::index_dataset(config, labels::Split::kTrain, options);
  EXPECT_EQ(indexed.dataset.size(), 2);
  ASSERT_EQ(indexed.report.faults.size(), 1u);
  EXPECT_THAT(indexed.report.faults[0].what, StartsWith("colours (BMP), but"));
}

}  // namespace
}  // namespace headroom::codecs
