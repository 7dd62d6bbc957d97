#include "deploy/cli/plan/plan_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const std::vector<std::string>& flags) {
  std::vector<std::string> words = {"plan", "--cfg", "yolov5n"};
  words.insert(words.end(), flags.begin(), flags.end());
  try {
    check_beside_sweep(parse_command_line(words));
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    return error.what();
  }
  return "accepted";
}

TEST(ParseSweep, ListsAndDoublingRanges) {
  configs::RunConfig config;
  const Sweep sweep = parse_sweep("img=416,640 batch=8..40", config);
  EXPECT_THAT(sweep.image_sizes, ElementsAre(416, 640));
  EXPECT_THAT(sweep.batches, ElementsAre(8, 16, 32));
  config.global_batch_size = 24;
  EXPECT_THAT(parse_sweep("img=416", config).batches, ElementsAre(24));
  EXPECT_THAT(parse_sweep("img=416", config).models, ElementsAre("yolov5s"));
  EXPECT_THAT(parse_sweep("cfg=yolov5n,yolov8n", config).models,
              ElementsAre("yolov5n", "yolov8n"));
}

TEST(SweepPlans, ModelsAreCompared) {
  configs::RunConfig config;
  config.synthetic_input = true;
  const Sweep sweep =
      parse_sweep("cfg=yolov5n,yolov5nu,yolov8n batch=2", config);
  const std::vector<SweepCell> cells = sweep_plans(
      config, 1, sweep, {}, [](const auto&...) { return 0.25; });
  ASSERT_EQ(cells.size(), 3U);
  EXPECT_EQ(cells[0].model, "yolov5n");
  EXPECT_EQ(cells[0].parameters, 1'872'157);
  // Without the 16 numbers of the bins, which are not trained.
  EXPECT_EQ(cells[1].parameters, 2'654'816 - 16);
  EXPECT_EQ(cells[2].parameters, 3'157'200 - 16);
  for (const SweepCell& cell : cells) {
    EXPECT_TRUE(cell.fits) << cell.refusal;
    EXPECT_GT(cell.predicted_peak_bytes, 0);
  }
  EXPECT_GT(cells[2].predicted_peak_bytes, cells[0].predicted_peak_bytes);
  EXPECT_THAT(sweep_text(cells), HasSubstr("yolov8n"));
  EXPECT_THAT(sweep_text(cells), HasSubstr("3157184"));
  EXPECT_THAT(sweep_json(cells), HasSubstr("\"step_seconds\": 0.25"));
}

TEST(CheckBesideSweep, AFlagOfAnAxisThatIsSweptIsNotIgnored) {
  EXPECT_EQ(refusal({"--img", "128", "--sweep", "img=64", "batch=2"}),
            "[command line] --img is given, and --sweep names values of img "
            "too: leave one of the two out");
  EXPECT_EQ(refusal({"--sweep", "batch=2", "--batch", "4"}),
            "[command line] --batch is given, and --sweep names values "
            "of batch too: leave one of the two out");
  EXPECT_THAT(refusal({"--sweep", "cfg=yolov8n"}),
              HasSubstr("--cfg is given, and --sweep names values of cfg too"));
  EXPECT_EQ(refusal({"--sweep", "img=64", "--batch", "4"}), "accepted");
  EXPECT_EQ(refusal({"--sweep", "batch=2", "--img", "64"}), "accepted");
}

TEST(CheckBesideSweep, TheLargestBatchADrawingAndPricesDoNotGoWithIt) {
  EXPECT_THAT(refusal({"--sweep", "img=64,128", "--batch", "-1"}),
              HasSubstr("--batch -1 chooses one batch"));
  EXPECT_THAT(refusal({"--sweep", "img=64", "--show", "schedule"}),
              HasSubstr("--show draws one plan"));
  EXPECT_THAT(refusal({"--sweep", "img=64", "--gpu", "T4", "--prices", "p"}),
              HasSubstr("--prices compares machines for one request"));
}

}  // namespace
}  // namespace headroom::cli
