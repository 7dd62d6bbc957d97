// Tests pages of stacks and slides. A number after the file's name requests a
// page; the first page is 1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <opencv2/core.hpp>
#include <string>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "tests/worker/data/refusal.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/labels/packing.h"

namespace headroom::codecs {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TiffPages : public ::testing::Test {
 protected:
  // Three pages, each of its own height and picture.
  void SetUp() override {
    TiffForm form{.compression = COMPRESSION_LZW};
    for (int page = 1; page <= 3; ++page) {
      pictures_.push_back(test_picture(20 + page, 32, page));
      write_tiff(stack_, pictures_.back(), form);
      form.appended = true;
    }
  }
  std::string page(int number) const {
    return stack_.string() + "#" + std::to_string(number);
  }

  const TemporaryFolder folder_;
  const fs::path stack_ = folder_.path() / "stack.tif";
  std::vector<cv::Mat> pictures_;
};

TEST(PageNames, AreANumberBehindATiff) {
  for (const char* name : {"a.tif#1", "b/c.TIFF#12", "slide.svs#3"}) {
    EXPECT_TRUE(names_page(name)) << name;
  }
  for (const char* name : {"a.tif", "a.png#1", "a.tif#", "a.tif#x", "#1",
                           "a.tif#1/b.jpg", "a.tif#1234567"}) {
    EXPECT_FALSE(names_page(name)) << name;
  }
  EXPECT_EQ(image_page("b/c.TIFF#12").file, "b/c.TIFF");
  EXPECT_EQ(image_page("b/c.TIFF#12").page, 12);
  EXPECT_EQ(labels::label_path("/d/images/s.tif#3"), "/d/labels/s#3.txt");
}

TEST_F(TiffPages, AreImagesOfTheirOwn) {
  EXPECT_TRUE(same_pixels(decode_image(stack_).pixels, pictures_[0]));
  for (int number = 1; number <= 3; ++number) {
    const ImageResult result = decode_image(page(number));
    ASSERT_TRUE(result.ok()) << result.reason;
    EXPECT_TRUE(same_pixels(result.pixels, pictures_[number - 1]));
    EXPECT_EQ(inspect_image(page(number)).size.height, 20 + number);
  }
}

TEST_F(TiffPages, ThatDoNotExistAreReported) {
  EXPECT_EQ(decode_image(page(4)).reason,
            "there is no page 4: the file has 3 pages");
  EXPECT_EQ(inspect_image(page(0)).reason, "page 0: the first page is 1");
  folder_.write("png.tif", encode_png(pictures_[0]));
  EXPECT_EQ(decode_image(folder_.path() / "png.tif#1").reason,
            "a PNG file, which has no pages");
  EXPECT_THAT(decode_image(folder_.path() / "none.tif#1").reason,
              HasSubstr("cannot be opened"));
}

TEST_F(TiffPages, AFileOfThatVeryNameIsItself) {
  folder_.write("stack.tif#2", encode_png(pictures_[2]));
  EXPECT_TRUE(same_pixels(decode_image(page(2)).pixels, pictures_[2]));
}

TEST_F(TiffPages, ACompressionThatIsNotReadIsNamed) {
  std::string bytes = read_bytes(stack_);
  // The compression LZW has the number 5, and Aperio's JPEG 2000 has 33003. The
  // entry begins with tag 259 (compression), type 3 and count 1.
  const std::string entry{"\x03\x01\x03\x00\x01\x00\x00\x00\x05\x00", 10};
  const size_t at = bytes.find(entry);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at + 8, 2, std::string{"\xEB\x80", 2});
  const fs::path file = folder_.write("slide.svs", bytes);
  EXPECT_THAT(inspect_image(file).reason,
              HasSubstr("a TIFF compressed by Aperio's JPEG 2000"));
}

TEST_F(TiffPages, AreListedAndLabelled) {
  const fs::path list =
      folder_.write("list.txt", "stack.tif#1\n./stack.tif#3\n");
  folder_.write("stack#1.txt", "0 .5 .5 .2 .2\n");
  folder_.write("stack#3.txt", "1 .5 .5 .2 .2\n2 .5 .5 .3 .3\n");
  const auto config = data_config(folder_, list);
  labels::IndexOptions options;
  const labels::Dataset dataset =
      labels::index_dataset(config, labels::Split::kTrain, options).dataset;
  ASSERT_EQ(dataset.size(), 2);
  EXPECT_EQ(dataset.path(1), page(3));
  EXPECT_EQ(dataset.image_size(1).height, 23);
  EXPECT_EQ(dataset.labels(0).size(), 1u);
  EXPECT_EQ(dataset.labels(1).size(), 2u);
  labels::DataReport report;
  EXPECT_THAT(labels::list_images({page(2)}, report), ElementsAre(page(2)));
}

TEST_F(TiffPages, AreNotPacked) {
  const fs::path list = folder_.write("list.txt", "stack.tif#1\n");
  folder_.write("stack#1.txt", "0 .5 .5 .2 .2\n");
  auto config = data_config(folder_, list);
  config.val = config.train;
  labels::PackingRequest request;
  request.output = folder_.path() / "packs";
  EXPECT_THAT(refusal_of([&] { labels::pack_data(config, request); },
                         ExitCode::kRequest),
              HasSubstr("stack.tif#1 is a page"));
  EXPECT_FALSE(fs::exists(request.output));
}

// A real file: a slide of Aperio whose first page is tiled. The pages of its
// pyramid, label and macro follow.
TEST(RealStacks, ASlidesPagesAreRead) {
  const fs::path slide =
      shared_data_set("badimages") / "libvips_CMU-1-Small-Region.svs";
  if (!fs::exists(slide)) GTEST_SKIP() << kSharedDataMissing;
  EXPECT_EQ(decode_image(slide.string() + "#1").size, (ImageSize{2967, 2220}));
  const ImageResult thumbnail = decode_image(slide.string() + "#2");
  ASSERT_TRUE(thumbnail.ok()) << thumbnail.reason;
  EXPECT_LT(thumbnail.size.height, 2967);
  // The JPEG's colours are converted to red, green and blue: tissue is pink.
  const cv::Scalar mean = cv::mean(thumbnail.pixels);
  EXPECT_GT(mean[0], mean[1]);
  EXPECT_GT(mean[2], mean[1]);
  EXPECT_THAT(decode_image(slide.string() + "#99").reason,
              HasSubstr("there is no page 99: the file has"));
}

TEST(RealStacks, AFaxesPagesAreRead) {
  const fs::path fax =
      shared_data_set("badimages") / "pillow_multipage_g4.tiff";
  if (!fs::exists(fax)) GTEST_SKIP() << kSharedDataMissing;
  EXPECT_TRUE(same_pixels(decode_image(fax).pixels,
                          decode_image(fax.string() + "#1").pixels));
  const ImageResult second = decode_image(fax.string() + "#2");
  ASSERT_TRUE(second.ok()) << second.reason;
  EXPECT_FALSE(same_pixels(second.pixels, decode_image(fax).pixels));
}

}  // namespace
}  // namespace headroom::codecs
