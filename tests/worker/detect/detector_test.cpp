// A trained network detects objects in whole pictures and in tiles.
#include "worker/detect/detector.h"

#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <set>

#include "tests/support/parity.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/codecs/image.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/weights/open_weights.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;

constexpr int kSide = 320;

class DetectorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!parity_present()) GTEST_SKIP() << kParityMissing;
    weights_ = weights::open_weights(parity_path("weights/bccd_v5n.pt"), "");
    const codecs::ImageResult image =
        codecs::decode_image(parity_path("../datasets/bccd/images/test/"
                                         "BloodImage_00007.jpg"));
    ASSERT_TRUE(image.ok()) << image.reason;
    picture_ = augment::resize_loaded(image.pixels, {kSide, kSide}, false);
  }

  Detector detector(std::optional<DetectionTiles> tiles,
                    double confidence = 0.25) {
    DetectorOptions options;
    options.height = options.width = kSide;
    options.nms.confidence_threshold = confidence;
    options.nms.iou_threshold = 0.45;
    options.nms.multi_label = false;
    options.tiles = tiles;
    return Detector(*weights_.model, options);
  }

  std::vector<metrics::Detection> detect(const cv::Mat& pixels,
                                         std::optional<DetectionTiles> tiles) {
    return detector(tiles).detect(pixels);
  }

  weights::OpenedWeights weights_;
  cv::Mat picture_;
};

void expect_same(const metrics::Detection& a, const metrics::Detection& b,
                 float x, float y) {
  EXPECT_EQ(a.class_index, b.class_index);
  EXPECT_NEAR(a.confidence, b.confidence, 1e-4);
  EXPECT_NEAR(a.box.x1 + x, b.box.x1, 1e-2);
  EXPECT_NEAR(a.box.y1 + y, b.box.y1, 1e-2);
  EXPECT_NEAR(a.box.x2 + x, b.box.x2, 1e-2);
  EXPECT_NEAR(a.box.y2 + y, b.box.y2, 1e-2);
}

void expect_equal(const std::vector<metrics::Detection>& a,
                  const std::vector<metrics::Detection>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].box.x1, b[i].box.x1);
    EXPECT_EQ(a[i].box.y2, b[i].box.y2);
    EXPECT_EQ(a[i].confidence, b[i].confidence);
  }
}

TEST(NetworkImage, ShrinksBilinearlyOrByAreaAverages) {
  cv::Mat pixels(96, 96, CV_8UC3);
  cv::randu(pixels, 0, 256);
  const auto shrunk = [&](int method) {
    cv::Mat small;
    cv::resize(pixels, small, {32, 32}, 0, 0, method);
    return small;
  };
  const auto seen = [&](Resample resample) {
    const auto image = network_image(pixels, 32, 32, 32, resample);
    cv::Mat bytes(32, 32, CV_8UC3);
    at::from_blob(bytes.data, {1, 32, 32, 3}, at::kByte)
        .copy_(image->images.permute({0, 2, 3, 1}).mul(255).round());
    return bytes;
  };
  const auto differ = [](const cv::Mat& a, const cv::Mat& b) {
    return cv::norm(a, b, cv::NORM_INF);
  };
  const cv::Mat area = shrunk(cv::INTER_AREA);
  const cv::Mat bilinear = shrunk(cv::INTER_LINEAR);
  ASSERT_GT(differ(area, bilinear), 50);
  EXPECT_EQ(differ(seen(Resample::kArea), area), 0);
  EXPECT_EQ(differ(seen(Resample::kBilinear), bilinear), 0);
}

TEST_F(DetectorTest, KnowsTheClassesOfItsWeights) {
  EXPECT_EQ(weights_.class_names,
            (std::vector<std::string>{"RBC", "WBC", "Platelets"}));
}

TEST_F(DetectorTest, ATileThatHoldsThePictureIsThePicture) {
  const auto whole = detect(picture_, {});
  ASSERT_GE(whole.size(), 5u);
  const auto tiled = detect(picture_, DetectionTiles{kSide, kSide, 0.2});
  ASSERT_EQ(tiled.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    expect_same(whole[i], tiled[i], 0, 0);
  }
}

// Four copies of a picture are side by side, one tile for each. The objects of
// the picture are found four times, each at its place.
TEST_F(DetectorTest, EachTileFindsTheObjectsOfItsOwnCopy) {
  cv::Mat four(2 * kSide, 2 * kSide, CV_8UC3);
  for (const int y : {0, kSide}) {
    for (const int x : {0, kSide}) {
      picture_.copyTo(four(cv::Rect(x, y, kSide, kSide)));
    }
  }
  const auto tiled = detect(four, DetectionTiles{kSide, kSide, 0});
  int found = 0;
  for (const metrics::Detection& one : detect(picture_, {})) {
    for (const int y : {0, kSide}) {
      for (const int x : {0, kSide}) {
        const tiles::TileRect tile{y, x, kSide, kSide};
        metrics::Detection moved = one;
        moved.box = {one.box.x1 + static_cast<float>(x),
                     one.box.y1 + static_cast<float>(y),
                     one.box.x2 + static_cast<float>(x),
                     one.box.y2 + static_cast<float>(y)};
        if (is_cut(moved.box, tile, 2 * kSide, 2 * kSide)) continue;
        ++found;
        EXPECT_TRUE(
            std::any_of(tiled.begin(), tiled.end(),
                        [&](const metrics::Detection& other) {
                          return other.class_index == one.class_index &&
                                 std::abs(other.box.x1 - moved.box.x1) < 1e-2 &&
                                 std::abs(other.box.y2 - moved.box.y2) < 1e-2;
                        }))
            << moved.box.x1 << " " << moved.box.y1;
      }
    }
  }
  EXPECT_GE(found, 20);
}

// The limit does not allow the whole picture to be held. A BMP stores its rows
// from the bottom up.
TEST_F(DetectorTest, AFileThatIsNeverHeldHasTheSameBoxes) {
  const TemporaryFolder folder;
  const codecs::ImageSize size{kSide, kSide};
  codecs::ImageLimits limits;
  limits.max_pixels = kSide * kSide - 1;
  const DetectionTiles tiles{128, 128, 0.25};
  constexpr double kLow = 0.001;  // the scores of gray pictures are low
  cv::Mat gray;
  cv::cvtColor(picture_, gray, cv::COLOR_RGB2GRAY);
  cv::Mat gray_as_colours;
  cv::cvtColor(gray, gray_as_colours, cv::COLOR_GRAY2RGB);
  const std::vector<std::pair<fs::path, cv::Mat>> files = {
      {folder.write("a.bmp", encode_bmp(picture_)), picture_},
      {folder.write("b.png", codecs::encode_png_bytes(picture_)), picture_},
      {folder.write("c.png", codecs::encode_png_bytes(gray)), gray_as_colours}};
  for (const auto& [file, pixels] : files) {
    SCOPED_TRACE(file.string());
    EXPECT_FALSE(codecs::decode_image(file, limits).ok());
    Detector low = detector(tiles, kLow);
    TileFindings seen = low.tiles_of(size);
    std::set<size_t> looked;
    const auto look = low.look_in_file(file, limits, seen, [&](size_t tile) {
      return looked.insert(tile).second;
    });
    EXPECT_EQ(look.reason, "");
    EXPECT_TRUE(look.is_whole);
    EXPECT_EQ(looked.size(), seen.places.size());
    const auto held = low.detect(pixels);
    EXPECT_FALSE(held.empty());
    expect_equal(low.merged(seen), held);
  }
}

// An unfinished run has already processed some tiles.
TEST_F(DetectorTest, KnownTilesAreNotProcessedAgain) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("a.bmp", encode_bmp(picture_));
  Detector low = detector(DetectionTiles{128, 128, 0.25}, 0.001);
  TileFindings all = low.tiles_of({kSide, kSide});
  low.look(picture_, all, [](size_t) { return true; });
  ASSERT_EQ(all.places.size(), 9u);
  for (const bool is_held : {true, false}) {
    TileFindings some = all;
    std::set<size_t> lost = {1, 4, 8}, looked;
    for (const size_t tile : lost) some.found[tile].reset();
    const OnTile note = [&](size_t tile) { return looked.insert(tile).second; };
    EXPECT_TRUE(is_held ? low.look(picture_, some, note)
                        : low.look_in_file(file, {}, some, note).is_whole);
    EXPECT_EQ(looked, lost);
    expect_equal(low.merged(some), low.merged(all));
  }
}

TEST_F(DetectorTest, ADamagedFileAndACancelledSearchAreHandled) {
  const TemporaryFolder folder;
  const codecs::ImageSize size{kSide, kSide};
  const std::string bytes = codecs::encode_png_bytes(picture_);
  const fs::path cut = folder.write("cut.png", bytes.substr(0, 9000));
  const DetectionTiles tiles{128, 128, 0};
  Detector eyes = detector(tiles);
  const auto look_at = [&](const fs::path& file, const OnTile& on_tile) {
    TileFindings seen = eyes.tiles_of(size);
    return eyes.look_in_file(file, {}, seen, on_tile);
  };
  const OnTile goes_on = [](size_t) { return true; };
  const auto damaged = look_at(cut, goes_on);
  EXPECT_FALSE(damaged.is_whole);
  EXPECT_NE(damaged.reason, "");
  cv::Mat deep;
  picture_.convertTo(deep, CV_16U, 257);
  EXPECT_NE(
      look_at(folder.write("16.png", codecs::encode_png_bytes(deep)), goes_on)
          .reason.find("more than 8 bits"),
      std::string::npos);
  int looked = 0;
  const auto ended = look_at(folder.write("whole.png", bytes),
                             [&](size_t) { return ++looked < 2; });
  EXPECT_EQ(looked, 2);
  EXPECT_FALSE(ended.is_whole);
  EXPECT_EQ(ended.reason, "");
}

TEST_F(DetectorTest, AnImageOfOneLineHasNoBoxesAndNoError) {
  EXPECT_TRUE(detect(cv::Mat(1, 20'000, CV_8UC3, cv::Scalar()), {}).empty());
}

}  // namespace
}  // namespace headroom::detect
