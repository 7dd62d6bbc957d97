#include "worker/data/augment/letterbox.h"

#include <gtest/gtest.h>

#include "tests/worker/data/data_files.h"

namespace headroom::augment {
namespace {

TEST(Letterbox, FitsAnImageIntoANetworkThatIsNotSquare) {
  // This image is flatter than the network, so the width decides.
  EXPECT_EQ(fit_size({100, 400}, 320, 640), (codecs::ImageSize{160, 640}));
  // This image is taller than the network, so the height decides, and the width
  // is rounded up.
  EXPECT_EQ(fit_size({300, 100}, 320, 640), (codecs::ImageSize{320, 107}));
  EXPECT_EQ(fit_size({1, 100'000}, 320, 640), (codecs::ImageSize{1, 640}));
}

TEST(Letterbox, NeverExceedsTheNetwork) {
  for (int side = 1; side < 3000; side += 7) {
    const codecs::ImageSize size = fit_size({side, 2 * side + 1}, 416, 416);
    EXPECT_EQ(size.width, 416) << side;
    EXPECT_LE(size.height, 416) << side;
  }
}

TEST(Letterbox, SharesNoPixels) {
  const cv::Mat picture = test_picture(64, 64, 1);
  LetterboxOptions options;
  const cv::Mat boxed =
      letterbox(picture, letterbox_geometry({64, 64}, 64, 64, options));
  EXPECT_TRUE(same_pixels(boxed, picture));
  EXPECT_NE(boxed.data, picture.data);
}

TEST(Letterbox, AVeryFlatImageKeepsARow) {
  const cv::Mat picture = test_picture(1, 2000, 1);
  const Letterbox geometry = letterbox_geometry({1, 2000}, 64, 64, {});
  const cv::Mat boxed = letterbox(picture, geometry);
  EXPECT_EQ(boxed.rows, 64);
  EXPECT_EQ(boxed.cols, 64);
}

TEST(Letterbox, LoadingChoosesTheInterpolation) {
  const cv::Mat picture = test_picture(80, 60, 1);
  EXPECT_EQ(resize_loaded(picture, {80, 60}, false).data, picture.data);
  const cv::Mat trained = resize_loaded(picture, {40, 30}, true);
  const cv::Mat validated = resize_loaded(picture, {40, 30}, false);
  EXPECT_FALSE(same_pixels(trained, validated) && trained.empty());
  const cv::Mat larger = resize_loaded(picture, {160, 120}, true);
  EXPECT_TRUE(same_pixels(larger, resize_loaded(picture, {160, 120}, false)));
}

}  // namespace
}  // namespace headroom::augment
