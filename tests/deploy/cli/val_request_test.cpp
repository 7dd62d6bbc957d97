// Tests which settings val takes from its weights, unless flags set them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "deploy/cli/run_request.h"
#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::_;
using ::testing::ElementsAre;
using testing::TemporaryFolder;

class ValRequest : public ::testing::Test {
 protected:
  ValRequest() { fs::create_directories(root_.path() / "images"); }

  std::string data(const std::string& names) const {
    return root_.write("data.yaml",
                       "train: images\nval: images\nnames: [" + names + "]\n");
  }
  // A weights file of yolov5n that has only metadata.
  std::string weights(const std::string& metadata) const {
    const std::string header =
        R"({"__metadata__": {"model": "yolov5n")" + metadata + "}}";
    return root_.write("w.safetensors", std::string(1, char(header.size())) +
                                            std::string(7, '\0') + header);
  }
  static RunRequest request(const std::vector<std::string>& words) {
    return make_run_request(parse_command_line(words), std::nullopt, 8);
  }

  TemporaryFolder root_;
};

TEST_F(ValRequest, TakesTheSizeThatWeightsWereTrainedWith) {
  const std::string file = weights(R"(, "imgsz": "[224, 320]")");
  const auto judged = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"val", "--data", data("a, b"),
                                      "--weights", file};
    words.insert(words.end(), more.begin(), more.end());
    RunRequest run = request(words);
    run.notes.push_back(std::to_string(run.config.image_height) + " x " +
                        std::to_string(run.config.image_width));
    return run.notes;
  };
  EXPECT_THAT(judged({}),
              ElementsAre("--img is 224 x 320, as " + file + " was trained",
                          "224 x 320"));
  EXPECT_THAT(judged({"--img", "640"}), ElementsAre("640 x 640"));
  EXPECT_THAT(judged({"--set", "image_width=640"}), ElementsAre("640 x 640"));
  const std::string config =
      root_.write("val.yaml", "image_height: 96\nimage_width: 64\n");
  EXPECT_THAT(judged({"--config", config}), ElementsAre("96 x 64"));
  root_.write("val.yaml", "nms_iou_threshold: 0.5\n");
  EXPECT_THAT(judged({"--config", config}), ElementsAre(_, "224 x 320"));
  // Training does not take its image size from the weights.
  EXPECT_EQ(request({"train", "--data", data("a, b"), "--project",
                     root_.path().string(), "--weights", file})
                .config.image_height,
            640);
}

// One of the headers has 60 bytes, so its file begins with '<' like a web page.
TEST_F(ValRequest, ValidatesOneClassWhereWeightsWereTrainedWithSingleCls) {
  const auto judged = [&](const std::string& file, const std::string& names) {
    return request({"val", "--data", data(names), "--weights", file});
  };
  const std::string file = weights(R"(, "single_cls": "true")");
  const RunRequest run = judged(file, "a, b");
  EXPECT_TRUE(run.config.single_cls);
  EXPECT_THAT(run.notes,
              ElementsAre("--single-cls: all classes are judged as one, as " +
                          file + " was trained"));
  EXPECT_FALSE(judged(file, "a").config.single_cls) << "there is one alone";
  EXPECT_FALSE(judged(weights(""), "a, b").config.single_cls);
}

}  // namespace
}  // namespace headroom::cli
