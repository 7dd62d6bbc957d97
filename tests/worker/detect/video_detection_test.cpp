// detect on a video writes a file for each picture, and the video with its
// boxes.
#include "worker/detect/video_detection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "tests/support/file_size_limit.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/video/clips.h"
#include "worker/model/layer_graph.h"
#include "worker/video/video.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kVideoSide = 64;

class VideoDetection : public ::testing::Test {
 protected:
  VideoDetection()
      : model_(layers::load_model_table("yolov5n"), 2, at::kFloat, 0),
        detector_(model_, options()) {
    files_.text = files_.csv = files_.json = true;
  }
  void SetUp() override {
    const std::string lack = video::check_programs();
    if (!lack.empty()) GTEST_SKIP() << lack;
    clip_ =
        folder_.write("clip.avi", video::avi_clip(kVideoSide, kVideoSide, 10));
  }

  // Options with which an untrained network finds three boxes in a picture.
  static DetectorOptions options() {
    DetectorOptions options;
    options.height = options.width = kVideoSide;
    options.nms.confidence_threshold = 0;
    options.nms.max_detections = 3;
    options.nms.multi_label = false;
    return options;
  }
  VideoOutcome detect(DetectionFolder& out, int64_t stride = 1,
                      int64_t stop_after = 1000) {
    VideoOptions video;
    video.stride = stride;
    video.max_pixels = kVideoSide * kVideoSide;
    video.stopped = [&, stop_after] {
      return static_cast<int64_t>(numbers_.size()) >= stop_after;
    };
    video.on_picture = [&](const VideoPicture& picture) {
      numbers_.push_back(picture.number);
      EXPECT_EQ(picture.of, 10);
      EXPECT_EQ(picture.found.detections.size(), 3u);
    };
    return detect_in_video(clip_, detector_, out, video);
  }
  DetectionFolder folder() {
    return {folder_.path() / "out", {"cat", "dog"}, files_};
  }
  std::set<std::string> names(const std::string& below) {
    std::set<std::string> names;
    for (const auto& entry :
         fs::directory_iterator(folder_.path() / "out" / below)) {
      if (entry.is_regular_file()) names.insert(entry.path().filename());
    }
    return names;
  }
  // Returns the number of pictures and the pictures per second of the annotated
  // video.
  std::pair<int64_t, double> annotated() {
    std::string reason;
    const auto reader =
        video::open_video(folder_.path() / "out/clip.mp4",
                          {.max_pixels = kVideoSide * kVideoSide}, reason);
    EXPECT_TRUE(reader) << reason;
    int64_t count = 0;
    cv::Mat picture(kVideoSide, kVideoSide, CV_8UC3);
    while (reader->next(picture.data)) ++count;
    EXPECT_EQ(reader->fault(), "");
    return {count, static_cast<double>(reader->format().rate) /
                       static_cast<double>(reader->format().rate_denominator)};
  }

  TemporaryFolder folder_;
  model::LayerGraph model_;
  Detector detector_;
  FolderOptions files_;
  fs::path clip_;
  std::vector<int64_t> numbers_;
};

TEST_F(VideoDetection, APictureIsAnImageThatHasItsNumber) {
  DetectionFolder out = folder();
  const VideoOutcome outcome = detect(out);
  out.finish();
  EXPECT_EQ(outcome.pictures, 10);
  EXPECT_EQ(outcome.fault, "");
  EXPECT_THAT(names(""),
              ElementsAre("clip.mp4", "predictions.csv", "predictions.json"));
  EXPECT_THAT(
      names("labels"),
      ElementsAre("clip_1.txt", "clip_10.txt", "clip_2.txt", "clip_3.txt",
                  "clip_4.txt", "clip_5.txt", "clip_6.txt", "clip_7.txt",
                  "clip_8.txt", "clip_9.txt"));
  EXPECT_EQ(annotated(), (std::pair<int64_t, double>{10, 10}));
  const auto json = nlohmann::json::parse(
      read_bytes(folder_.path() / "out/predictions.json"));
  ASSERT_EQ(json.size(), 30u);
  EXPECT_EQ(json[0]["image_id"], "clip_1");
  EXPECT_EQ(json[29]["image_id"], "clip_10");
  const std::string csv = read_bytes(folder_.path() / "out/predictions.csv");
  EXPECT_EQ(std::ranges::count(csv, '\n'), 31);
  EXPECT_THAT(csv, HasSubstr("clip_10,"));
}

TEST_F(VideoDetection, AStrideKeepsNumbersAndLength) {
  DetectionFolder out = folder();
  EXPECT_EQ(detect(out, 4).pictures, 3);
  out.finish();
  EXPECT_THAT(numbers_, ElementsAre(1, 5, 9));
  EXPECT_THAT(names("labels"),
              ElementsAre("clip_1.txt", "clip_5.txt", "clip_9.txt"));
  EXPECT_EQ(annotated(), (std::pair<int64_t, double>{3, 2.5}));
}

TEST_F(VideoDetection, AStopKeepsTheResultsSoFar) {
  DetectionFolder out = folder();
  EXPECT_EQ(detect(out, 1, 4).pictures, 4);
  out.finish();
  EXPECT_EQ(annotated().first, 4);
  EXPECT_EQ(names("labels").size(), 4u);
}

TEST_F(VideoDetection, ATruncatedVideoGivesThePicturesItHas) {
  fs::resize_file(clip_, fs::file_size(clip_) / 2);
  DetectionFolder out = folder();
  const VideoOutcome outcome = detect(out);
  out.finish();
  EXPECT_GE(outcome.pictures, 3);
  EXPECT_THAT(outcome.fault, HasSubstr("of 10 pictures"));
  EXPECT_EQ(annotated().first, outcome.pictures);
}

TEST_F(VideoDetection, AVideoThatCannotBeWrittenLeavesNoFile) {
  fs::create_directories(folder_.path() / "out/clip.mp4/taken");
  files_.may_exist = true;
  {
    DetectionFolder out = folder();
    EXPECT_THROW(detect(out), Error);
  }
  EXPECT_THAT(names(""), IsEmpty());
  fs::remove_all(folder_.path() / "out/clip.mp4");
  numbers_.clear();
  {
    DetectionFolder out = folder();
    const FileSizeLimit limit(2000);
    EXPECT_THROW(detect(out), Error);
  }
  EXPECT_THAT(names(""), IsEmpty());
}

TEST_F(VideoDetection, NothingIsWrittenForAFileThatIsNoVideo) {
  folder_.write("clip.avi", "#EXTM3U\n");
  DetectionFolder out = folder();
  const VideoOutcome outcome = detect(out);
  EXPECT_EQ(outcome.pictures, 0);
  EXPECT_THAT(outcome.fault, HasSubstr("it cannot be opened"));
  EXPECT_FALSE(fs::exists(folder_.path() / "out"));
}

// Picture 3 of clip.avi and the image clip_3.jpg would both have
// labels/clip_3.txt.
TEST_F(VideoDetection, PicturesDoNotReplaceImages) {
  files_.pictures = false;
  DetectionFolder out = folder();
  cv::Mat pixels = video::clip_picture(kVideoSide, kVideoSide, 1);
  out.add({"clip_3.jpg", kVideoSide, kVideoSide, {}}, pixels);
  EXPECT_EQ(out.begin_video("a/clip.avi"), "clip_video");
  EXPECT_EQ(out.begin_video("b/clip.avi"), "clip_2");
  EXPECT_EQ(out.begin_video("b/other.avi"), "other");
}

}  // namespace
}  // namespace headroom::detect
