#include "deploy/cli/run_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string headline_for(const std::string& model, int64_t height,
                         int64_t width) {
  RunRequest request;
  request.config.command = "train";
  request.config.cfg = model;
  request.config.image_height = height;
  request.config.image_width = width;
  return headline(request);
}

TEST(Headline, ShowsTheSizeThatIsTrained) {
  EXPECT_THAT(headline_for("yolov5n", 65, 65),
              HasSubstr("yolov5n, 96 x 96 (rounded up from 65 x 65), batch"));
  EXPECT_THAT(headline_for("yolov5n6", 640, 650),
              HasSubstr("640 x 704 (rounded up from 640 x 650)"));
  EXPECT_THAT(headline_for("yolov5n", 32, 32),
              HasSubstr("64 x 64 (rounded up from 32 x 32)"));
  EXPECT_THAT(headline_for("yolov5n", 320, 640), HasSubstr("320 x 640, batch"));
}

TEST(Headline, ShowsTheRequestedModelWhereItsFileIsMissing) {
  EXPECT_THAT(headline_for("elsewhere.yaml", 65, 65),
              HasSubstr("65 x 65, batch"));
  RunRequest request;
  request.config.command = "train";
  request.config.cfg = "elsewhere.yaml";
  EXPECT_EQ(model_line(request),
            "a checkpoint after each epoch, and every 60 s");
}

// YOLOv5's own figures for yolov5n are 1.9 million parameters and 4.5 GFLOPs.
TEST(Headline, ShowsTheModelsSizeAndWhenCheckpointsAreWritten) {
  RunRequest request;
  request.config.command = "train";
  request.config.cfg = "yolov5n";
  EXPECT_EQ(
      model_line(request),
      "model: 1.87 million parameters, 4.47 GFLOPs an image; a checkpoint "
      "after each epoch, and every 60 s");
  request.config.checkpoint_every_steps = 5;
  EXPECT_THAT(model_line(request),
              HasSubstr("a checkpoint every 5 steps and after each epoch"));
  request.config.nosave = true;
  EXPECT_THAT(model_line(request), HasSubstr("a checkpoint every 5 steps"));
  request.config.checkpoint_every_steps = 0;
  EXPECT_THAT(model_line(request), HasSubstr("no checkpoint before the end"));
}

}  // namespace
}  // namespace headroom::cli
