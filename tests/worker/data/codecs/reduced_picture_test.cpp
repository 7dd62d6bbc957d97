// A reduced picture is made from the rows of the file, or from a smaller
// picture in the file.
#include "worker/data/codecs/reduced_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <string>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"

namespace headroom::codecs {
namespace {

namespace fs = std::filesystem;

bool go_on(int64_t, int64_t) { return true; }

class ReducedPictures : public ::testing::Test {
 protected:
  const TemporaryFolder folder_;
  const fs::path map_ = folder_.path() / "map.tif";
  const cv::Mat picture_ = test_picture(120, 90, 1);

  // Appends a page of one colour, so that a test can tell which page pixels are
  // from.
  void append(int height, int width, uint8_t value, uint32_t kind,
              int type = CV_8UC3) {
    write_tiff(map_, cv::Mat(height, width, type, cv::Scalar::all(value)),
               {.appended = true, .kind = kind});
  }
  ReducedPicture reduced(int64_t longest) {
    return reduced_picture(map_, {}, longest, go_on);
  }
};

TEST_F(ReducedPictures, APixelIsTheMeanOfASquare) {
  write_tiff(map_, picture_, {});
  cv::Mat wanted;
  cv::resize(picture_, wanted, {30, 40}, 0, 0, cv::INTER_AREA);
  const ReducedPicture result = reduced(40);
  ASSERT_EQ(result.reason, "");
  ASSERT_EQ(result.pixels.size(), wanted.size());
  EXPECT_LE(cv::norm(result.pixels, wanted, cv::NORM_INF), 1);
}

TEST_F(ReducedPictures, ThatDoNotDivideKeepTheirShape) {
  write_tiff(map_, picture_, {.orientation = ORIENTATION_RIGHTTOP});
  const ReducedPicture result = reduced(50);
  ASSERT_EQ(result.reason, "");
  EXPECT_EQ(result.pixels.size(), cv::Size(50, 38));
  EXPECT_EQ(reduced(90).pixels.size(), cv::Size(90, 68));
  EXPECT_TRUE(same_pixels(reduced(1000).pixels, decode_image(map_).pixels));
  cv::Mat wanted;
  cv::resize(decode_image(map_).pixels, wanted, {50, 38}, 0, 0, cv::INTER_AREA);
  EXPECT_LE(cv::norm(result.pixels, wanted, cv::NORM_INF), 3);
}

TEST_F(ReducedPictures, OfSixteenBitsAreShown) {
  const cv::Mat gray(8, 8, CV_16UC1, cv::Scalar(40'000));
  write_tiff(map_, gray);
  ImageLimits limits;
  limits.ranges = {{0, 80'000}};
  const ReducedPicture result = reduced_picture(map_, limits, 4, go_on);
  ASSERT_EQ(result.reason, "");
  EXPECT_EQ(result.pixels.type(), CV_8UC3);
  EXPECT_NEAR(result.pixels.at<cv::Vec3b>(1, 1)[2], 128, 1);
}

TEST_F(ReducedPictures, TheSmallestOverviewThatIsLargeEnoughIsRead) {
  write_tiff(map_, picture_, {});
  append(60, 45, 10, FILETYPE_REDUCEDIMAGE);
  append(30, 23, 20, FILETYPE_REDUCEDIMAGE);  // rounded up
  const auto shade = [&](int64_t longest) {
    return reduced(longest).pixels.at<cv::Vec3b>(3, 3)[0];
  };
  EXPECT_EQ(shade(60), 10);
  EXPECT_EQ(shade(31), 10);
  EXPECT_EQ(shade(30), 20);
  EXPECT_EQ(shade(15), 20);
  EXPECT_EQ(reduced(15).pixels.size(), cv::Size(12, 15));
  EXPECT_GT(shade(61), 20);
}

TEST_F(ReducedPictures, MasksAndOtherPicturesAreNoOverviews) {
  write_tiff(map_, picture_, {});
  append(60, 45, 1, FILETYPE_REDUCEDIMAGE | FILETYPE_MASK);
  append(60, 60, 1, FILETYPE_REDUCEDIMAGE);
  append(60, 45, 1, FILETYPE_REDUCEDIMAGE, CV_16UC3);
  append(120, 90, 1, FILETYPE_REDUCEDIMAGE);
  EXPECT_GT(cv::mean(reduced(60).pixels)[0], 20);
  append(60, 45, 10, FILETYPE_REDUCEDIMAGE);
  EXPECT_EQ(cv::mean(reduced(60).pixels)[0], 10);
}

TEST_F(ReducedPictures, AnotherPagesOverviewIsNotThatOfTheFirst) {
  write_tiff(map_, picture_, {});
  append(120, 90, 1, 0);
  append(60, 45, 1, FILETYPE_REDUCEDIMAGE);
  EXPECT_GT(cv::mean(reduced(60).pixels)[0], 20);
}

// A page that is 2^32 - 1 pixels wide.
TEST_F(ReducedPictures, APageOfNoPossibleSizeIsPassedOver) {
  write_tiff(map_, picture_, {});
  append(61, 47, 1, FILETYPE_REDUCEDIMAGE);
  append(60, 45, 10, FILETYPE_REDUCEDIMAGE);
  std::string bytes = read_bytes(map_);
  // The second page's entry ImageWidth: a number of 16 bits becomes one of 32.
  const std::string entry{'\0', 1, 3, 0, 1, 0, 0, 0, 47};
  const size_t at = bytes.find(entry);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at + 2, 1, 1, '\4');
  bytes.replace(at + 8, 4, 4, '\xff');
  folder_.write("map.tif", bytes);
  EXPECT_EQ(cv::mean(reduced(60).pixels)[0], 10);
}

TEST_F(ReducedPictures, ADamagedOverviewIsNoDamageOfTheImage) {
  write_tiff(map_, picture_, {});
  const size_t before = fs::file_size(map_);
  write_tiff(map_, test_picture(60, 45, 2),
             {.compression = COMPRESSION_ADOBE_DEFLATE,
              .appended = true,
              .kind = FILETYPE_REDUCEDIMAGE});
  std::string bytes = read_bytes(map_);
  std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(before) + 8, 40, '\0');
  folder_.write("map.tif", bytes);
  EXPECT_FALSE(decode_image(map_.string() + "#2").ok());
  cv::Mat wanted;
  cv::resize(picture_, wanted, {45, 60}, 0, 0, cv::INTER_AREA);
  const ReducedPicture result = reduced(60);
  ASSERT_EQ(result.reason, "");
  EXPECT_LE(cv::norm(result.pixels, wanted, cv::NORM_INF), 1);
}

TEST_F(ReducedPictures, EndOnRequest) {
  write_tiff(map_, picture_, {});
  int64_t last = 0;
  const ReducedPicture result =
      reduced_picture(map_, {}, 40, [&](int64_t done, int64_t of) {
        EXPECT_EQ(of, 120);
        EXPECT_LT(done, of);
        last = done;
        return done < 60;
      });
  EXPECT_EQ(result.reason, "");
  EXPECT_TRUE(result.pixels.empty());
  EXPECT_EQ(last, 60);
}

TEST_F(ReducedPictures, ThatAreInvalidGiveTheReason) {
  EXPECT_THAT(reduced(40).reason, ::testing::HasSubstr("cannot be opened"));
}

}  // namespace
}  // namespace headroom::codecs
