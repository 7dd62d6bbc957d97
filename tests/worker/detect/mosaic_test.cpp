// Tests which maps belong to one picture, which tiles are on the seams of these
// maps, and how the boxes of such tiles are merged.
#include "worker/detect/mosaic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <opencv2/core.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/codecs/geo_tags.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/tiles/tile_cutter.h"

namespace headroom::detect {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;
using tiles::TileRect;

const MergeOptions kMerging{.iou_threshold = 0.45, .max_detections = 1000};

// A map whose corner is `column` pixels east and `row` pixels south of a fixed
// place; by default a pixel has 0.1 m.
maps::MapPlace map_at(double column, double row, int64_t height, int64_t width,
                      const std::string& system = "UTM 33",
                      double pixel = 0.1) {
  return {.transform = {500'000 + column * pixel, pixel, 0,
                        5'400'000 - row * pixel, 0, -pixel},
          .reference_system = system,
          .height = height,
          .width = width};
}

using Repeats = std::vector<std::pair<size_t, size_t>>;

std::vector<Mosaic> mosaics_of(const std::vector<maps::MapPlace>& places,
                               Repeats* repeats = nullptr) {
  MosaicFinder finder;
  for (size_t i = 0; i < places.size(); ++i) finder.add(i, places[i]);
  return finder.find([&](size_t repeat, size_t earlier) {
    if (repeats != nullptr) repeats->emplace_back(repeat, earlier);
  });
}

// A 2 x 2 mosaic of parts of 96 pixels.
Mosaic four_parts() {
  return mosaics_of({map_at(0, 0, 96, 96), map_at(96, 0, 96, 96),
                     map_at(0, 96, 96, 96), map_at(96, 96, 96, 96)})
      .at(0);
}

TEST(MosaicFinder, MapsThatTouchOrOverlapAreParts) {
  const auto mosaics =
      mosaics_of({map_at(300, 0, 100, 100), map_at(200, 50, 100, 100),
                  map_at(1000, 0, 50, 50), map_at(110, 0, 100, 100.0)});
  ASSERT_EQ(mosaics.size(), 1u);
  std::vector<std::tuple<size_t, double, double>> parts;
  for (const MosaicPart& part : mosaics[0].parts) {
    parts.emplace_back(part.image, part.x, part.y);
  }
  EXPECT_THAT(parts, ElementsAre(std::tuple(0, 190, 0), std::tuple(1, 90, 50),
                                 std::tuple(3, 0, 0)));
  EXPECT_TRUE(mosaics[0].has_pixels(95, 140));
  EXPECT_FALSE(mosaics[0].has_pixels(80, 140));
}

TEST(MosaicFinder, OtherSystemsOtherPixelsAndDistantMapsAreNoParts) {
  EXPECT_TRUE(
      mosaics_of({map_at(0, 0, 100, 100), map_at(100, 0, 100, 100, "UTM 32"),
                  map_at(100, 0, 100, 100, "UTM 33", 0.2),
                  map_at(102, 0, 100, 100)})
          .empty());
}

// The corner and the pixel size of a map are rounded in its file.
TEST(MosaicFinder, ASlightlyLongerPixelIsTheSame) {
  EXPECT_EQ(mosaics_of({map_at(0, 0, 100, 100),
                        map_at(100.0001, 0, 100, 100, "UTM 33", 0.100001)})
                .size(),
            1u);
}

// Places are counted in pixels from the first map. That map is half a pixel
// off, which must not separate the others.
TEST(MosaicFinder, ADistantMapBetweenPixelsChangesNothing) {
  const auto mosaics =
      mosaics_of({map_at(50.5, 5000.5, 100, 100), map_at(0, 0, 100, 100),
                  map_at(100, 0, 100, 100)});
  ASSERT_EQ(mosaics.size(), 1u);
  EXPECT_EQ(mosaics[0].parts[0].image, 1u);
  EXPECT_EQ(mosaics[0].parts[1].x, 100);
  const auto apart =
      mosaics_of({map_at(0, 0, 100, 100), map_at(100.4, 0, 100, 100)});
  ASSERT_EQ(apart.size(), 1u);
  EXPECT_EQ(
      seam_tiles(apart[0], {.height = 64, .width = 64, .overlap = 0.5}).size(),
      3u);
  EXPECT_TRUE(
      mosaics_of({map_at(0, 0, 100, 100), map_at(100.6, 0, 100, 100)}).empty());
}

// The images of the only mosaic; empty if there is no mosaic.
std::vector<size_t> images_of(const std::vector<maps::MapPlace>& places,
                              Repeats& repeats) {
  const auto mosaics = mosaics_of(places, &repeats);
  EXPECT_LE(mosaics.size(), 1u);
  std::vector<size_t> images;
  for (const Mosaic& mosaic : mosaics) {
    for (const MosaicPart& part : mosaic.parts) images.push_back(part.image);
  }
  return images;
}

TEST(MosaicFinder, ARepeatedMapIsLeftOutAndTheOthersAreAMosaic) {
  Repeats repeats;
  EXPECT_THAT(images_of({map_at(0, 0, 100, 100), map_at(10, 0, 100, 100),
                         map_at(100, 0, 100, 100), map_at(200, 0, 100, 100)},
                        repeats),
              ElementsAre(0, 2, 3));
  EXPECT_THAT(repeats, ElementsAre(std::pair(1, 0)));
}

TEST(MosaicFinder, TwoYearsOfAMosaic_TheFirstYearIsAMosaic) {
  Repeats repeats;
  EXPECT_THAT(images_of({map_at(0, 0, 100, 100), map_at(100, 0, 100, 100),
                         map_at(100, 0, 100, 100), map_at(0, 0, 100, 100),
                         map_at(0, 1, 100, 100)},
                        repeats),
              ElementsAre(0, 1));
  EXPECT_THAT(repeats,
              ElementsAre(std::pair(2, 1), std::pair(3, 0), std::pair(4, 0)));
}

TEST(MosaicFinder, AMapIsNotExcludedForRepeatingAnExcludedOne) {
  Repeats repeats;
  EXPECT_THAT(images_of({map_at(0, 0, 100, 100), map_at(40, 0, 100, 100),
                         map_at(80, 0, 100, 100)},
                        repeats),
              ElementsAre(0, 2));
  EXPECT_THAT(repeats, ElementsAre(std::pair(1, 0)));
}

TEST(MosaicFinder, ALeftOutMapJoinsNoOthers) {
  Repeats repeats;
  EXPECT_THAT(images_of({map_at(0, 0, 100, 100), map_at(45, 0, 100, 100),
                         map_at(145, 0, 100, 100)},
                        repeats),
              ElementsAre());
  EXPECT_THAT(repeats, ElementsAre(std::pair(1, 0)));
}

TEST(SeamTiles, LieAcrossSeamsAndCorners) {
  EXPECT_THAT(
      seam_tiles(four_parts(), {.height = 64, .width = 64, .overlap = 0.5}),
      UnorderedElementsAre(TileRect{0, 64, 64, 64}, TileRect{32, 64, 64, 64},
                           TileRect{64, 64, 64, 64}, TileRect{96, 64, 64, 64},
                           TileRect{128, 64, 64, 64}, TileRect{64, 0, 64, 64},
                           TileRect{64, 32, 64, 64}, TileRect{64, 96, 64, 64},
                           TileRect{64, 128, 64, 64}));
}

TEST(SeamTiles, PartsThatShareEnoughHaveNone) {
  const auto tiles_of = [](double second, double overlap) {
    const auto mosaic =
        mosaics_of({map_at(0, 0, 96, 96), map_at(second, 0, 96, 96)});
    return seam_tiles(mosaic.at(0),
                      {.height = 640, .width = 40, .overlap = overlap});
  };
  EXPECT_TRUE(tiles_of(76, 0.5).empty());
  EXPECT_THAT(tiles_of(77, 0.5), ElementsAre(TileRect{0, 66, 96, 40}));
  EXPECT_TRUE(tiles_of(96, 0).empty());
}

TEST(SeamTiles, StayWithinSmallParts) {
  const auto mosaic =
      mosaics_of({map_at(0, 0, 30, 20), map_at(20, 0, 50, 20)}).at(0);
  EXPECT_THAT(seam_tiles(mosaic, {.height = 64, .width = 64, .overlap = 0.2}),
              ElementsAre(TileRect{0, 0, 50, 40}));
}

// A model's input is read across two neighbouring maps, for several numbers of
// bands.
TEST(MosaicReader, GivesThePixelsOfThePictureThatWasCut) {
  const TemporaryFolder folder;
  const Mosaic mosaic =
      mosaics_of({map_at(0, 0, 50, 40), map_at(40, 10, 50, 60)}).at(0);
  for (const int type : {CV_8UC3, CV_8UC(5), CV_16UC(5)}) {
    cv::Mat whole(60, 100, type);
    cv::randu(whole, 0, 256);
    const std::vector<std::filesystem::path> files = {
        folder.write("a.tif", codecs::encode_tiff_bytes(
                                  whole(cv::Rect(0, 0, 40, 50)).clone())),
        folder.write("b.tif", codecs::encode_tiff_bytes(
                                  whole(cv::Rect(40, 10, 60, 50)).clone()))};
    codecs::ImageLimits limits;
    limits.bands = whole.channels();
    // This range keeps the levels as they are stored.
    if (whole.depth() == CV_16U) limits.ranges = {{0, codecs::kMostLevel}};
    MosaicReader reader(mosaic, files, limits);
    const TileRect inside{20, 30, 25, 20};
    EXPECT_TRUE(same_pixels(reader.read(inside),
                            whole(cv::Rect(30, 20, 20, 25)).clone()));
    const cv::Mat over_the_edge = reader.read({0, 30, 20, 20});
    const cv::Mat expected = codecs::plain_picture(20, 20, type, 114);
    whole(cv::Rect(30, 0, 10, 20)).copyTo(expected(cv::Rect(0, 0, 10, 20)));
    whole(cv::Rect(40, 10, 10, 10)).copyTo(expected(cv::Rect(10, 10, 10, 10)));
    EXPECT_TRUE(same_pixels(over_the_edge, expected));
    std::filesystem::remove(files[1]);
    EXPECT_TRUE(same_pixels(reader.read({0, 0, 20, 20}),
                            whole(cv::Rect(0, 0, 20, 20)).clone()));
    EXPECT_THROW(reader.read(inside), Error);
  }
}

// The last rows of both maps have no data, and in the first map also a part of
// the overlap has none. The files may have other samples than the model reads.
TEST(MosaicReader, APixelWithoutDataIsTakenFromAnotherPart) {
  const TemporaryFolder folder;
  const Mosaic mosaic =
      mosaics_of({map_at(0, 0, 50, 60), map_at(30, 0, 50, 60)}).at(0);
  struct Case {
    int type;
    double none;
    std::string text;  // "no data" in the file's tag
    ValueRanges ranges = {};
  };
  for (const auto& [type, none, text, ranges] :
       {Case{CV_8UC3, 0, "0"}, Case{CV_8UC(5), 255, "255"},
        Case{CV_16UC3, 65'535, "65535"},
        Case{CV_16UC(5), 700, "700", {{0, 1000}}},
        Case{CV_32FC1, -9999, "-9999", {{-10, 300}}}, Case{CV_8UC3, 0, "-9999"},
        Case{CV_8UC3, 0, "nan"}}) {
    SCOPED_TRACE(text + " of type " + std::to_string(type));
    cv::Mat whole(50, 90, type);
    cv::randu(whole, 1, 255);
    whole.rowRange(40, 50).setTo(none);
    cv::Mat first = whole.colRange(0, 60).clone();
    first.colRange(45, 60).setTo(none);
    codecs::GeoTags tags;
    tags.no_data = text;
    const std::vector<std::filesystem::path> files = {
        folder.write("a.tif", codecs::encode_tiff_bytes(first, &tags)),
        folder.write("b.tif", codecs::encode_tiff_bytes(
                                  whole.colRange(30, 90).clone(), &tags))};
    const auto undivided =
        folder.write("whole.tif", codecs::encode_tiff_bytes(whole));
    codecs::ImageLimits limits;
    limits.bands = whole.channels();
    limits.ranges = ranges;
    MosaicReader reader(mosaic, files, limits);
    const TileRect overlap{10, 20, 40, 50};
    const bool is_named = text == std::to_string(std::lround(none));
    const TileRect seen = is_named ? overlap : TileRect{10, 20, 40, 25};
    EXPECT_TRUE(same_pixels(reader.read(seen),
                            tiles::cut_window(undivided, seen, limits).pixels));
    if (!is_named) {
      EXPECT_FALSE(
          same_pixels(reader.read(overlap),
                      tiles::cut_window(undivided, overlap, limits).pixels));
    }
  }
}

metrics::Detection box_at(float x1, float y1, float x2, float y2,
                          float confidence) {
  return {{x1, y1, x2, y2}, confidence, 0};
}

TileFindings whole_part(std::vector<metrics::Detection> found) {
  return {{96, 96}, {{0, 0, 96, 96}}, {std::move(found)}};
}

// An object is on the first seam. Each part shows a piece of it, and the seam's
// tile shows the whole object.
TEST(MergeMosaic, TheWholeObjectReplacesItsPieces) {
  MosaicFindings findings;
  findings.parts = {
      whole_part({box_at(80, 10, 96, 30, .9F)}),
      whole_part({box_at(0, 10, 10, 30, .8F), box_at(50, 50, 60, 60, .4F)}),
      whole_part({}), whole_part({box_at(0, 0, 9, 9, .7F)})};
  findings.seams = {{0, 64, 64, 64}};
  findings.on_seams = {{box_at(16, 10, 42, 30, .5F)}};
  const auto boxes = merge_mosaic(four_parts(), findings, kMerging);
  ASSERT_EQ(boxes.size(), 4u);
  ASSERT_EQ(boxes[0].size(), 1u);  // the centre of the box is at 93 of 96
  EXPECT_EQ(boxes[0][0].box.x1, 80);
  EXPECT_EQ(boxes[0][0].box.x2, 106);
  ASSERT_EQ(boxes[1].size(), 1u);
  EXPECT_EQ(boxes[1][0].box.x1, 50);
  EXPECT_TRUE(boxes[2].empty());
  EXPECT_EQ(boxes[3].size(), 1u);
}

// The maps have a gap of 0.4 pixels, which must be ignored.
TEST(MergeMosaic, AnObjectWhoseCentreLiesInAGapIsOne) {
  const Mosaic mosaic =
      mosaics_of({map_at(0, 0, 96, 96), map_at(96.4, 0, 96, 96)}).at(0);
  for (const float centre : {96.0F, 96.2F, 96.3F, 96.6F}) {
    MosaicFindings findings;
    findings.parts = {
        whole_part({box_at(centre - 10, 10, 96, 30, .9F)}),
        whole_part({box_at(0, 10, centre + 10 - 96.4F, 30, .8F)})};
    findings.seams = {{0, 64, 64, 64}};
    findings.on_seams = {{box_at(centre - 74, 10, centre - 54, 30, .5F)}};
    const auto boxes = merge_mosaic(mosaic, findings, kMerging);
    EXPECT_EQ(boxes[0].size() + boxes[1].size(), 1u) << centre;
  }
}

TEST(MergeMosaic, AnObjectInAnOverlapIsOne) {
  const Mosaic mosaic =
      mosaics_of({map_at(0, 0, 96, 96), map_at(64, 0, 96, 96)}).at(0);
  MosaicFindings findings;
  findings.parts = {whole_part({box_at(70, 10, 80, 20, .5F)}),
                    whole_part({box_at(6, 10, 16, 20, .6F)})};
  const auto boxes = merge_mosaic(mosaic, findings, kMerging);
  EXPECT_TRUE(boxes[0].empty());
  EXPECT_EQ(boxes[1].size(), 1u);
}

// Both parts find the second object. The first part's box is more confident and
// replaces the second part's.
TEST(MergeMosaic, ObjectsBeyondAPartsLimitAreTakenFromAnotherPart) {
  const Mosaic mosaic =
      mosaics_of({map_at(0, 0, 96, 96), map_at(64, 0, 96, 96)}).at(0);
  MosaicFindings findings;
  findings.parts = {
      whole_part({box_at(10, 10, 20, 20, .9F), box_at(70, 10, 80, 20, .8F),
                  box_at(40, 10, 50, 20, .75F)}),
      whole_part({box_at(6, 10, 16, 20, .7F)})};
  MergeOptions one = kMerging;
  one.max_detections = 1;
  const auto boxes = merge_mosaic(mosaic, findings, one);
  ASSERT_EQ(boxes[0].size(), 1u);
  EXPECT_EQ(boxes[0][0].confidence, .9F);
  ASSERT_EQ(boxes[1].size(), 1u);
  EXPECT_EQ(boxes[1][0].confidence, .8F);
  EXPECT_EQ(boxes[1][0].box.x1, 6);
}

// At such coordinates, float32 can represent only every second pixel.
TEST(MergeMosaic, TwentyMillionPixelsToTheEastBoxesAreAsExact) {
  const Mosaic mosaic =
      mosaics_of({map_at(0, 0, 96, 20'000'001), map_at(20'000'001, 0, 96, 96),
                  map_at(20'000'097, 0, 96, 96)})
          .at(0);
  MosaicFindings findings;
  findings.parts = {whole_part({}),
                    whole_part({box_at(10.3F, 10, 13.3F, 13, .9F),
                                box_at(11.9F, 10, 14.9F, 13, .8F),
                                box_at(91, 40, 96, 46, .9F)}),
                    whole_part({box_at(0, 40, 6.37F, 46, .8F)})};
  findings.seams = {{0, 20'000'065, 64, 64}};
  findings.on_seams = {{box_at(26.37F, 40, 38.37F, 46, .5F)}};
  const auto boxes = merge_mosaic(mosaic, findings, kMerging);
  ASSERT_EQ(boxes[1].size(), 2u);  // not merged: they share less than a third
  EXPECT_NEAR(boxes[1][0].box.x1, 10.3, 0.01);
  EXPECT_NEAR(boxes[1][1].box.x1, 11.9, 0.01);
  ASSERT_EQ(boxes[2].size(), 1u);
  EXPECT_NEAR(boxes[2][0].box.x1, -5.63, 0.01);
  EXPECT_NEAR(boxes[2][0].box.x2, 6.37, 0.01);
}

TEST(MergeMosaic, AtMostSoManyOfAPart) {
  MosaicFindings findings;
  for (int part = 0; part < 4; ++part) {
    findings.parts.push_back(
        whole_part({box_at(10, 10, 20, 20, .5F), box_at(30, 10, 40, 20, .6F)}));
  }
  MergeOptions one = kMerging;
  one.max_detections = 1;
  for (const auto& boxes : merge_mosaic(four_parts(), findings, one)) {
    ASSERT_EQ(boxes.size(), 1u);
    EXPECT_EQ(boxes[0].confidence, .6F);
  }
}

}  // namespace
}  // namespace headroom::detect
