// Every file of ../shared/datasets/badimages is read, or refused for the
// expected reason, and none of them takes too much memory.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "tests/worker/data/data_files.h"
#include "worker/data/codecs/image.h"

namespace headroom::codecs {
namespace {

namespace fs = std::filesystem;

struct Verdict {
  ImageSize size;      // the size of a good file
  const char* reason;  // part of the reason against a bad file
};

const std::map<std::string, Verdict>& verdicts() {
  static const std::map<std::string, Verdict> table{
      {"imagers_3x62728.jpeg", {{}, "cannot hold"}},
      {"imagers_reallybig.bmp", {{}, "above the limit"}},
      {"libvips_CMU-1-Small-Region.svs", {{2967, 2220}, ""}},
      {"made_bitflips.jpg", {{}, "damaged JPEG: Corrupt JPEG data"}},
      {"made_header_only.jpg", {{}, "damaged JPEG: Premature end"}},
      {"made_html_as.jpg", {{}, "text (HTML or XML), not a JPEG"}},
      {"made_lfs_pointer.jpg", {{}, "Git LFS pointer"}},
      {"made_png_named.jpg", {{300, 400}, ""}},
      {"made_trailing_junk.jpg", {{480, 640}, ""}},
      {"made_truncated_half.jpg", {{}, "damaged JPEG: Premature end"}},
      {"made_zero_byte.jpg", {{}, "empty file"}},
      {"pillow_16bit_gray.tif", {{64, 64}, ""}},
      {"pillow_16bit_noise.tif", {{32, 32}, ""}},
      {"pillow_bad_exif.jpg", {{}, "damaged JPEG: Corrupt JPEG data"}},
      {"pillow_broken.png", {{}, "damaged PNG"}},
      {"pillow_broken_data_stream.png", {{}, "bad adaptive filter value"}},
      {"pillow_crash_0e16.tif", {{}, "TIFF"}},
      {"pillow_crash_63b1.tif", {{}, "TIFF"}},
      {"pillow_decompression_bomb.gif",
       {{}, "a GIF image, which is not supported"}},
      {"pillow_exif6.jpg", {{128, 128}, ""}},
      {"pillow_multipage_g4.tiff", {{4677, 3307}, ""}},
      {"pillow_png_exif_orientation.png", {{512, 512}, ""}},
      {"sharp_16bit-grey-alpha.png", {{96, 109}, ""}},
      {"sharp_big-height.webp", {{169, 13}, ""}},
      {"sharp_blackbug.png", {{1536, 2048}, ""}},
      {"sharp_bomb_65536x65536.png", {{}, "65536 x 65536 pixels are above"}},
      {"sharp_cielab.tiff", {{266, 400}, ""}},
      {"sharp_cmyk_icc.jpg", {{333, 500}, ""}},
      {"sharp_cmyk_noicc.jpg", {{333, 500}, ""}},
      {"sharp_corrupt-header.jpg", {{}, "damaged JPEG"}},
      {"sharp_exif6_Portrait_6.jpg", {{600, 450}, ""}},
      {"sharp_exif8_Landscape_8.jpg", {{450, 600}, ""}},
      {"sharp_giant_20000x14000.jpg", {{}, "20000 x 14000 pixels are above"}},
      {"sharp_grey8-alpha.png", {{300, 400}, ""}},
      {"sharp_palette8.tiff", {{21, 21}, ""}},
      {"sharp_rgb16.png", {{600, 900}, ""}},
      {"sharp_tbgn2c16.png", {{32, 32}, ""}},
      {"sharp_truncated.jpg", {{}, "truncated JPEG"}},
      {"sharp_truncated.png", {{}, "the file ends early"}}};
  return table;
}

class BadImages : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(folder_)) GTEST_SKIP() << kSharedDataMissing;
  }
  const fs::path folder_ = shared_data_set("badimages");
};

TEST_F(BadImages, EachHasItsVerdict) {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    found.insert(name);
    ASSERT_TRUE(verdicts().contains(name)) << name;
    const Verdict& verdict = verdicts().at(name);
    const auto start = std::chrono::steady_clock::now();
    const ImageResult image = decode_image(entry.path());
    const ImageSizeResult size = read_image_size(entry.path());
    const ImageSizeResult inspected = inspect_image(entry.path());
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::seconds(10))
        << name;
    const bool good = verdict.reason[0] == '\0';
    ASSERT_EQ(image.ok(), good) << name << ": " << image.reason;
    if (!good) {
      EXPECT_NE(image.reason.find(verdict.reason), std::string::npos)
          << name << ": " << image.reason;
      EXPECT_TRUE(image.pixels.empty()) << name;
      continue;
    }
    EXPECT_EQ((ImageSize{image.pixels.rows, image.pixels.cols}), verdict.size)
        << name;
    EXPECT_EQ(image.pixels.type(), CV_8UC3) << name;
    // The header alone gives the same size, orientation included.
    EXPECT_EQ(size.size, verdict.size) << name << ": " << size.reason;
    EXPECT_EQ(inspected.size, verdict.size) << name << ": " << inspected.reason;
  }
  EXPECT_EQ(found.size(), verdicts().size());
}

// Truncated files are found without decoding the other files.
TEST_F(BadImages, InspectionFindsTruncatedFiles) {
  for (const char* name : {"made_truncated_half.jpg", "sharp_truncated.jpg",
                           "sharp_truncated.png"}) {
    EXPECT_FALSE(inspect_image(folder_ / name).ok()) << name;
  }
}

TEST_F(BadImages, OrientedPixelsMatchTheirSize) {
  // The portrait shows sky above water. Only its EXIF orientation makes it
  // upright.
  const ImageResult turned =
      decode_image(folder_ / "sharp_exif6_Portrait_6.jpg");
  ASSERT_TRUE(turned.ok());
  EXPECT_GT(turned.pixels.rows, turned.pixels.cols);
  const cv::Mat flat =
      decode_image(folder_ / "sharp_exif8_Landscape_8.jpg").pixels;
  EXPECT_GT(flat.cols, flat.rows);
}

TEST_F(BadImages, NoneTakesAGigabyte) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      decode_image(entry.path());
    }
    ::_exit(0);
  }
  int status = 0;
  rusage usage{};
  ASSERT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_LT(usage.ru_maxrss, 1 << 20);                // KiB
  EXPECT_GT(usage.ru_maxrss, 15'500'000 * 3 / 1024);  // the largest was read
}

// A higher limit admits the large photograph, and no other file.
TEST_F(BadImages, TheLimitIsTheCallers) {
  ImageLimits limits;
  limits.max_pixels = 300'000'000;
  EXPECT_EQ(
      read_image_size(folder_ / "sharp_giant_20000x14000.jpg", limits).size,
      (ImageSize{14000, 20000}));
  limits.max_pixels = 640 * 480 - 1;
  EXPECT_FALSE(decode_image(folder_ / "made_trailing_junk.jpg", limits).ok());
  limits.max_pixels = 640 * 480;
  EXPECT_TRUE(decode_image(folder_ / "made_trailing_junk.jpg", limits).ok());
  limits.max_file_bytes = 1000;
  EXPECT_NE(decode_image(folder_ / "made_trailing_junk.jpg", limits)
                .reason.find("above the limit of 1000 B"),
            std::string::npos);
}

}  // namespace
}  // namespace headroom::codecs
