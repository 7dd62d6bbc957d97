// headroom detect with videos among its sources reads the videos, or refuses
// them by name. (Detections and files are tested in tests/worker/detect and
// tests/worker/video.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <opencv2/core.hpp>
#include <string>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/tools/tool_run.h"
#include "tests/worker/video/clips.h"
#include "worker/video/video.h"

namespace headroom::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSide = 64;

class DetectCommand : public ::testing::Test {
 protected:
  DetectCommand() {
    folder_.write("in/a.bmp", encode_bmp(test_picture(kSide, kSide, 1)));
    clip_ = folder_.write("in/clip.avi", video::avi_clip(kSide, kSide, 5));
  }

  ToolResult run(const std::string& source,
                 const std::vector<std::string>& more, int channels = 3) {
    const fs::path weights = folder_.path() / "w.safetensors";
    write_weights(weights, 2, kSide, 0.02, channels);
    std::vector<std::string> words = {
        "detect",
        "--weights=" + weights.string(),
        "--source=" + source,
        "--output=" + (folder_.path() / "out").string(),
        "--exist-ok",
        "--conf-thres=0",
        "--max-det=2"};
    words.insert(words.end(), more.begin(), more.end());
    return result_of(find_tool_command("detect"), words);
  }
  // Returns the text on standard error and the boxes of the image.
  std::string boxes(std::vector<std::string> more) {
    more.push_back("--save-json");
    const ToolResult said = run((folder_.path() / "in/a.bmp").string(), more);
    EXPECT_EQ(said.code, 0) << said.err;
    return said.err + read_bytes(folder_.path() / "out/predictions.json");
  }
  bool has(const std::string& file) const {
    return fs::exists(folder_.path() / "out" / file);
  }

  TemporaryFolder folder_;
  fs::path clip_;
};

TEST_F(DetectCommand, TakesTheSizeOfTrainingAndReportsIt) {
  const std::string note = "--img is 64 x 64, as " +
                           (folder_.path() / "w.safetensors").string() +
                           " was trained\n";
  EXPECT_EQ(boxes({}), note + boxes({"--img=64"}));
  EXPECT_THAT(boxes({"--img=128"}), Not(HasSubstr("was trained")));
}

// An image in tiles may have thousands of objects.
TEST_F(DetectCommand, WarnsThatALargeImageMayHaveMoreBoxesThanAreKept) {
  const std::string note =
      "only the 2 surest boxes of an image are kept; a larger "
      "--max-det keeps more\n";
  EXPECT_THAT(boxes({"--tile=32"}), HasSubstr(note));
  EXPECT_THAT(boxes({}), Not(HasSubstr("are kept")));
}

TEST_F(DetectCommand, ShrinksBilinearlyByDefault) {
  // The picture is shrunk to a third. In a shrink to a half, the four nearest
  // pixels are the whole area, and both methods agree.
  cv::Mat noise(96, 96, CV_8UC3);
  cv::randu(noise, 0, 256);
  folder_.write("in/a.bmp", encode_bmp(noise));
  const std::string found = boxes({"--img=32"});
  EXPECT_EQ(found, boxes({"--img=32", "--resample=bilinear"}));
  EXPECT_NE(found, boxes({"--img=32", "--resample=area"}));
  EXPECT_EQ(run("in", {"--resample=cubic"}).code,
            static_cast<int>(ExitCode::kRequest));
}

TEST_F(DetectCommand, ReadsVideosAmongImages) {
  if (const std::string lack = video::check_programs(); !lack.empty()) {
    GTEST_SKIP() << lack;
  }
  const ToolResult said =
      run((folder_.path() / "in").string(), {"--save-txt", "--vid-stride=2"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out,
              AllOf(HasSubstr("image 1/1 "), HasSubstr("video 1/1 (3/5) "),
                    HasSubstr("8 boxes in 4 images, ")));
  EXPECT_THAT(said.err, Not(HasSubstr("left out")));
  for (const char* file : {"a.jpg", "clip.mp4", "labels/a.txt",
                           "labels/clip_1.txt", "labels/clip_5.txt"}) {
    EXPECT_TRUE(has(file)) << file;
  }
  EXPECT_FALSE(has("labels/clip_2.txt"));
}

TEST_F(DetectCommand, ADamagedVideoIsALine) {
  if (const std::string lack = video::check_programs(); !lack.empty()) {
    GTEST_SKIP() << lack;
  }
  folder_.write("in/text.mp4", "#EXTM3U\n");
  fs::resize_file(clip_, fs::file_size(clip_) / 2);
  const ToolResult said = run((folder_.path() / "in").string(), {});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(
      said.err,
      AllOf(HasSubstr("left out: " + (folder_.path() / "in/text.mp4").string() +
                      ": it cannot be opened"),
            HasSubstr(clip_.string() + " is damaged: "),
            HasSubstr(" of 5 pictures")));
  EXPECT_EQ(run((folder_.path() / "in/text.mp4").string(), {}).code,
            static_cast<int>(ExitCode::kData));
}

TEST_F(DetectCommand, WithoutFfmpegAVideoIsRefusedAndImagesAreNot) {
  const video::ProgramFolder none(folder_.path());
  const ToolResult alone = run(clip_.string(), {});
  EXPECT_EQ(alone.code, static_cast<int>(ExitCode::kRequest));
  EXPECT_THAT(alone.err,
              HasSubstr("clip.avi is a video, and ffmpeg cannot be started: "
                        "No such file or directory: install FFmpeg, for "
                        "example with apt-get install ffmpeg"));
  const ToolResult mixed = run((folder_.path() / "in").string(), {});
  EXPECT_EQ(mixed.code, 0);
  EXPECT_THAT(mixed.err, HasSubstr("left out: 1 video of "));
  EXPECT_TRUE(has("a.jpg"));
  EXPECT_FALSE(has("clip.mp4"));
}

TEST_F(DetectCommand, VideosHaveColours) {
  EXPECT_THAT(run(clip_.string(), {}, 5).err,
              AllOf(HasSubstr("is a video, and videos have colours, but the "
                              "model's ch is 5"),
                    HasSubstr("ffmpeg -i ")));
}

TEST_F(DetectCommand, CoordinatesNeedThePlugin) {
  setenv("HEADROOM_MAP_PLUGIN", "/none", 1);
  const ToolResult said =
      run((folder_.path() / "in/a.bmp").string(), {"--save-geojson"});
  unsetenv("HEADROOM_MAP_PLUGIN");
  EXPECT_EQ(said.code, static_cast<int>(ExitCode::kRequest));
  EXPECT_THAT(said.err, HasSubstr("libgdal-dev"));
  EXPECT_FALSE(has("predictions.geojson"));
}

TEST_F(DetectCommand, AnImageThatIsNoMapIsLeftOutOfTheLayers) {
  const std::string plugin = HEADROOM_BUILD_DIR "/bin/libheadroom_maps.so";
  if (!fs::exists(plugin)) GTEST_SKIP() << "this build knows no maps";
  setenv("HEADROOM_MAP_PLUGIN", plugin.c_str(), 1);
  const ToolResult said =
      run((folder_.path() / "in/a.bmp").string(), {"--save-geojson"});
  unsetenv("HEADROOM_MAP_PLUGIN");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.err, HasSubstr("a.bmp: it has no coordinates: it is no "
                                  "GeoTIFF"));
  EXPECT_TRUE(has("predictions.geojson"));
}

TEST_F(DetectCommand, AStrideIsANumber) {
  EXPECT_EQ(run(clip_.string(), {"--vid-stride=0"}).code,
            static_cast<int>(ExitCode::kRequest));
}

}  // namespace
}  // namespace headroom::tools
