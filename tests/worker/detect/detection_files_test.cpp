// Tests the files that detect writes, and the sources that it reads.
#include "worker/detect/detection_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <opencv2/core.hpp>
#include <set>
#include <string>
#include <vector>

#include "parallel/base/atomic_file.h"
#include "tests/support/error_text.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/codecs/image.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/detect/image_sources.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::vector<std::string> kNames = {"cat", "a, \"b\"", "../up"};

ImageDetections found_in(const fs::path& image) {
  return {image,
          100,
          200,
          {{{10, 20, 50, 60}, .75F, 0},
           {{0, 0, 200, 100}, .5F, 1},
           {{190, 90, 200, 100}, .25F, 2}}};
}

TEST(DetectionFiles, YoloText) {
  EXPECT_EQ(yolo_text(found_in("x.jpg"), false),
            "0 0.150000 0.400000 0.200000 0.400000\n"
            "1 0.500000 0.500000 1.000000 1.000000\n"
            "2 0.975000 0.950000 0.050000 0.100000\n");
  EXPECT_THAT(yolo_text(found_in("x.jpg"), true), HasSubstr(" 0.750000\n1 "));
}

TEST(DetectionFiles, CsvQuotesWhereNeeded) {
  EXPECT_EQ(csv_lines(found_in("a,b.jpg"), kNames),
            "\"a,b.jpg\",0,cat,0.75000,10.00,20.00,50.00,60.00\n"
            "\"a,b.jpg\",1,\"a, \"\"b\"\"\",0.50000,0.00,0.00,200.00,100.00\n"
            "\"a,b.jpg\",2,../up,0.25000,190.00,90.00,200.00,100.00\n");
}

TEST(DetectionFiles, ANameInCsvCannotBreakALineOrControlATerminal) {
  const std::string lines = csv_lines(found_in("a\nb\x1b[2J.jpg"), kNames);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  EXPECT_THAT(lines, HasSubstr("a b\\x1b[2J.jpg,0,cat,"));
}

TEST(DetectionFiles, CocoJson) {
  const CocoIds ids = {{}, usual_categories(kNames)};
  std::set<std::string> taken;
  const auto json = nlohmann::json::parse(
      "[" + coco_records(found_in("d/000042.jpg"), ids, taken) + "," +
      coco_records(found_in("d/42b.jpg"), ids, taken) + "]");
  ASSERT_EQ(json.size(), 6u);
  EXPECT_EQ(json[0].at("image_id"), 42);
  EXPECT_EQ(json[3].at("image_id"), "42b");
  EXPECT_EQ(json[0].at("category_id"), 0);
  EXPECT_EQ(json[2].at("category_id"), 2);
  EXPECT_EQ(json[0].at("bbox"), (std::vector<double>{10, 20, 40, 40}));
  EXPECT_EQ(json[0].at("score"), 0.75);
  EXPECT_EQ(coco_records({}, ids, taken), "");
}

// A folder may have a/1.jpg and b/1.jpg, or 1.jpg and 01.jpg.
TEST(DetectionFiles, EveryImageHasItsOwnIdInCocoJson) {
  const CocoIds ids = {{{"known.jpg", 7}}, usual_categories(kNames)};
  std::set<std::string> taken;
  std::vector<nlohmann::json> found;
  for (const char* image : {"known.jpg", "a/1.jpg", "b/1.jpg", "01.jpg",
                            "a/x.jpg", "b/x.jpg", "x_2.jpg", "7.jpg"}) {
    const auto json = nlohmann::json::parse(
        "[" + coco_records(found_in(image), ids, taken) + "]");
    found.push_back(json[0].at("image_id"));
    EXPECT_EQ(json[2].at("image_id"), found.back());
  }
  EXPECT_EQ(found, (std::vector<nlohmann::json>{7, 1, "1_2", "01_2", "x", "x_2",
                                                "x_2_2", "7_2"}));
}

TEST(DetectionFiles, CocosNamesHaveCocosIds) {
  std::istringstream list(
      "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic "
      "light,fire hydrant,stop sign,parking meter,bench,bird,cat,dog,horse,"
      "sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,"
      "suitcase,frisbee,skis,snowboard,sports ball,kite,baseball bat,baseball "
      "glove,skateboard,surfboard,tennis racket,bottle,wine glass,cup,fork,"
      "knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,hot dog,"
      "pizza,donut,cake,chair,couch,potted plant,bed,dining table,toilet,tv,"
      "laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,"
      "refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush");
  std::vector<std::string> names;
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  std::vector<int64_t> ids = usual_categories(names);
  ASSERT_EQ(ids.size(), 80u);
  for (const auto& [c, id] :
       std::vector<std::pair<size_t, int64_t>>{{0, 1},
                                               {10, 11},
                                               {11, 13},
                                               {24, 27},
                                               {26, 31},
                                               {56, 62},
                                               {60, 67},
                                               {61, 70},
                                               {73, 84},
                                               {79, 90}}) {
    EXPECT_EQ(ids[c], id) << names[c];
  }
  names.back() = "comb";  // now they are not the names of COCO
  EXPECT_EQ(usual_categories(names).back(), 79);
}

TEST(DetectionFiles, Counts) {
  EXPECT_EQ(counts_text(found_in("x"), kNames), "1 cat, 1 a, \"b\", 1 ../up");
  EXPECT_EQ(counts_text({}, kNames), "nothing");
}

class FolderTest : public ::testing::Test {
 protected:
  fs::path touch(const std::string& name) const {
    return temporary_.write(name, "x");
  }

  static std::string complaint(const std::string& source) {
    return error_text([&] { find_images(source); }, ExitCode::kData);
  }
  // A gray picture without objects, of the size of found_in().
  static cv::Mat picture() {
    return {100, 200, CV_8UC3, cv::Scalar(40, 80, 120)};
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(FolderTest, HoldsAllRequestedFiles) {
  FolderOptions options;
  options.text = options.csv = options.json = options.crops = true;
  DetectionFolder out(folder_ / "out", kNames, options);
  for (const char* image : {"a/x.jpg", "b/x.jpg", "b/x_2.jpg"}) {
    cv::Mat pixels = picture();
    out.add(found_in(image), pixels);
  }
  out.finish();
  for (const char* file :
       {"x.jpg", "x_2.jpg", "x_2_2.jpg", "labels/x.txt", "labels/x_2.txt",
        "labels/x_2_2.txt", "crops/cat/x_1.jpg", "crops/a, \"b\"/x_2.jpg",
        "crops/.._up/x_3.jpg", "predictions.csv", "predictions.json"}) {
    EXPECT_TRUE(fs::exists(folder_ / "out" / file)) << file;
  }
  const codecs::ImageResult crop =
      codecs::decode_image(folder_ / "out/crops/cat/x_1.jpg");
  EXPECT_EQ(crop.size, (codecs::ImageSize{40, 40}));
  // Crops are from the original picture, without boxes.
  EXPECT_NEAR(crop.pixels.at<cv::Vec3b>(0, 0)[0], 40, 3);
  // The written picture shows the boxes.
  const codecs::ImageResult drawn = codecs::decode_image(folder_ / "out/x.jpg");
  EXPECT_GT(cv::norm(drawn.pixels, picture()), 1000);
}

// An image that is never completely in memory. The written picture is smaller
// than the image; its crops have the full size.
class LargeImages : public FolderTest {
 protected:
  LargeImages() {
    options_.text = options_.csv = options_.crops = true;
    cv::Mat pixels(50, 5000, CV_8UC3, cv::Scalar(40, 80, 120));
    pixels.colRange(4000, 4100).setTo(cv::Scalar(200, 10, 10));
    write_whole_file(image_, codecs::encode_png_bytes(pixels));
  }
  // Stops at the first progress report of `step`.
  static GoOn end_at(const std::string& step) {
    return [step](const LargeProgress& progress) {
      EXPECT_LT(progress.done, progress.of);
      return progress.step != step;
    };
  }
  std::string refusal(const ImageDetections& found) {
    DetectionFolder out(folder_ / "refused", kNames, options_);
    return error_text([&] { out.add_large(found, {}, end_at("")); },
                      ExitCode::kData);
  }

  const fs::path image_ = folder_ / "large.png";
  // The second box has no pixels.
  const ImageDetections found_{image_,
                               50,
                               5000,
                               {{{4000, 10, 4100, 30}, .75F, 0},
                                {{5000, 10, 5000, 20}, .5F, 0},
                                {{0, 0, 30, 50}, .25F, 0}}};
  FolderOptions options_;
};

TEST_F(LargeImages, AreDrawnSmallAndCroppedFromTheirFile) {
  DetectionFolder out(folder_ / "out", kNames, options_);
  EXPECT_TRUE(out.add_large(found_, {}, end_at("")));
  out.finish();
  const cv::Mat drawn = codecs::decode_image(out.path() / "large.jpg").pixels;
  ASSERT_EQ(drawn.size(), cv::Size(4096, 41));
  EXPECT_NEAR(drawn.at<cv::Vec3b>(16, 3310)[0], 200, 5) << "inside of the box";
  EXPECT_GT(cv::norm(drawn.at<cv::Vec3b>(16, 3277), cv::Vec3b(200, 10, 10)), 50)
      << "its border";
  const codecs::ImageResult crop =
      codecs::decode_image(out.path() / "crops/cat/large_1.jpg");
  EXPECT_EQ(crop.size, (codecs::ImageSize{20, 100}));
  EXPECT_NEAR(crop.pixels.at<cv::Vec3b>(9, 50)[0], 200, 5);
  EXPECT_FALSE(fs::exists(out.path() / "crops/cat/large_2.jpg"));
  EXPECT_TRUE(fs::exists(out.path() / "crops/cat/large_3.jpg"));
  EXPECT_EQ(read_bytes(out.path() / "predictions.csv"),
            csv_header() + csv_lines(found_, kNames));
  EXPECT_TRUE(fs::exists(out.path() / "labels/large.txt"));
}

TEST_F(LargeImages, ThatWereInterruptedAreInNoTable) {
  DetectionFolder out(folder_ / "out", kNames, options_);
  EXPECT_FALSE(out.add_large(found_, {}, end_at("drawn")));
  EXPECT_FALSE(out.add_large(found_, {}, end_at("cropped")));
  out.finish();
  EXPECT_EQ(read_bytes(out.path() / "predictions.csv"), csv_header());
}

// The two sides of the written picture are rounded separately.
TEST_F(LargeImages, BoxesOfNarrowImagesAreAtTheirObjects) {
  options_.crops = false;
  cv::Mat tall(10001, 41, CV_8UC3, cv::Scalar(40, 80, 120));
  write_whole_file(image_, codecs::encode_png_bytes(tall));
  DetectionFolder out(folder_ / "out", kNames, options_);
  EXPECT_TRUE(out.add_large(
      {image_, 10001, 41, {{{0, 9000, 41, 9900}, .5F, 0}}}, {}, end_at("")));
  const cv::Mat drawn = codecs::decode_image(out.path() / "large.jpg").pixels;
  ASSERT_EQ(drawn.size(), cv::Size(17, 4096));
  const auto is_drawn = [&](int row) {
    return cv::norm(drawn.at<cv::Vec3b>(row, 8), cv::Vec3b(40, 80, 120)) > 30;
  };
  for (const double row : {9000.0, 9900.0}) {
    const int at = static_cast<int>(row * 4096 / 10001);
    EXPECT_TRUE(is_drawn(at)) << row;
    EXPECT_FALSE(is_drawn(at - 20)) << row;
    EXPECT_FALSE(is_drawn(at + 20)) << row;
  }
}

TEST_F(LargeImages, ThatHaveChangedAreRefused) {
  ImageDetections other = found_;
  other.height = 60;
  EXPECT_THAT(
      refusal(other),
      HasSubstr("large.png cannot be read again: its size has changed"));
  fs::remove(image_);
  EXPECT_THAT(refusal(found_), HasSubstr("large.png cannot be read again"));
}

TEST_F(FolderTest, WithoutARequestNothingIsWritten) {
  FolderOptions options;
  options.pictures = false;
  DetectionFolder out(folder_ / "out", kNames, options);
  cv::Mat pixels = picture();
  out.add(found_in("x.jpg"), pixels);
  out.finish();
  EXPECT_EQ(out.path(), "");
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

// Two runs of detect at the same time do not overwrite each other's files.
TEST_F(FolderTest, IsNewUnlessAnExistingOneIsAllowed) {
  FolderOptions options;
  std::vector<fs::path> used;
  for (const bool may_exist : {false, false, true}) {
    options.may_exist = may_exist;
    DetectionFolder out(folder_ / "runs" / "exp", kNames, options);
    cv::Mat pixels = picture();
    out.add(found_in("x.jpg"), pixels);
    out.finish();
    used.push_back(out.path().filename());
    EXPECT_TRUE(fs::exists(out.path() / "x.jpg"));
  }
  EXPECT_EQ(used, (std::vector<fs::path>{"exp", "exp2", "exp"}));
}

TEST_F(FolderTest, AFileInTheWayIsAWrongRequest) {
  DetectionFolder out(touch("file") / "exp", kNames, {});
  cv::Mat pixels = picture();
  EXPECT_THAT(error_text([&] { out.add(found_in("x.jpg"), pixels); },
                         ExitCode::kRequest),
              HasSubstr("cannot be made (Not a directory)"));
}

TEST_F(FolderTest, SourcesOfEveryKind) {
  const fs::path a = touch("set/a.jpg"), b = touch("set/deep/b.png");
  const fs::path c = touch("set/c.mp4"), d = touch("set/deep/d.gif");
  touch("set/notes.doc");
  const ImageSources all = find_images((folder_ / "set").string());
  EXPECT_EQ(all.images, (std::vector{a, b}));
  EXPECT_EQ(all.videos, (std::vector{c, d}));
  EXPECT_TRUE(all.left_out.empty()) << all.left_out[0];
  EXPECT_EQ(find_images(a.string()).images, std::vector{a});
  const ImageSources pattern = find_images((folder_ / "set/*").string());
  EXPECT_EQ(pattern.images[0], a);
  EXPECT_EQ(pattern.videos, (std::vector{c, d})) << "deep is a folder";
  EXPECT_EQ(find_images(touch("c.MOV").string()).videos.size(), 1u);
  const ImageSources video = find_images(c.string());
  EXPECT_TRUE(video.images.empty());
  EXPECT_EQ(video.videos, std::vector{c});
  EXPECT_EQ(find_images((folder_ / "set/*.mp4").string()).videos,
            std::vector{c});
  const fs::path list = temporary_.write("list.txt", a.string() + "\n");
  EXPECT_EQ(find_images(list.string()).images, std::vector{a});
}

TEST_F(FolderTest, SourcesThatDoNotExistOrAreNoFiles) {
  fs::create_directories(folder_ / "empty");
  for (const auto& [source, text] :
       std::vector<std::pair<std::string, std::string>>{
           {"https://example.org/a.jpg", "an address"},
           {"rtsp://10.0.0.5/live", "an address"},
           {(folder_ / "gone").string(), "there is nothing at"},
           {(folder_ / "*.jpg").string(), "there is nothing at"},
           {"0", "0 would be a camera"},
           {"screen", "screen would be a screen"},
           {(folder_ / "empty").string(), "holds no image"}}) {
    EXPECT_THAT(complaint(source), HasSubstr(text));
  }
  for (const char* list : {"a.m3u8", "a.SDP", "a.ffconcat", "a.streams"}) {
    EXPECT_THAT(complaint(touch(list).string()),
                HasSubstr("is a playlist or a list of streams"));
  }
}

}  // namespace
}  // namespace headroom::detect
