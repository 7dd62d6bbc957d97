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
}

TEST(CheckBesideSweep, AFlagOfAnAxisThatIsSweptIsNotIgnored) {
  EXPECT_EQ(refusal({"--img", "128", "--sweep", "img=64", "batch=2"}),
            "[command line] --img is given, and --sweep names values of img "
            "too: leave one of the two out");
  EXPECT_EQ(refusal({"--sweep", "batch=2", "--batch", "4"}),
            "[command line] --batch is given, and --sweep names values "
            "of batch too: leave one of the two out");
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
