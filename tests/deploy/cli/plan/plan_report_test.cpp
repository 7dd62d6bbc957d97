#include "deploy/cli/plan/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "parallel/base/check.h"
#include "parallel/plan/layout.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

configs::RunConfig config_of(const std::string& layout, int64_t group) {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.precision = configs::Precision::kFp32;
  if (!layout.empty()) config.layout = plan::parse_layout(layout);
  config.batch_norm_group_size = group;
  return config;
}

TEST(PlanReport, ThePlanInFullForReaders) {
  const PlanReport report =
      make_plan_report(config_of("data=2,pipeline=2", 4), 4, true);
  EXPECT_EQ(
      plan_report_text(report),
      R"(plan         as asked: 16 images over data 2 x pipeline 2, 2 micro-batches of 4, batch-norm groups of 4, stages from layers 0, 3
model        yolov5n, 80 classes, 640 x 640 pixels
assumed      80 classes and 100 boxes per image
layout       data=2,pipeline=2,spatial=1: 4 processes, gloo
zero         0
activations  keep
optimizer    SGD
precision    fp32

Predicted bytes of tensors of a rank, at the peak of a step: 100 boxes per image assumed
  stage  model state  images    kept     transient  communication  rest      predicted
  0      296 KiB      37.5 MiB  300 MiB  12.5 MiB   0 B            2.26 MiB  353 MiB
  1      35.6 MiB     0 B       258 MiB  56.1 MiB   0 B            2.26 MiB  352 MiB

In each part of a run, 16 of 16 images of a validation batch at once; host: of the loader and of files, with its part of the images that a machine's ranks share
  stage  start-up  training  validation  checkpoint  host
  0      8.47 MiB  353 MiB   304 MiB     2.55 MiB    1.33 GiB
  1      35.7 MiB  352 MiB   324 MiB     37.9 MiB    1.32 GiB

Layers of the model, multiply-adds of one image's forward, and predicted memory of a rank
  stage  layers  parameters  multiply-adds  share  memory   of one stage  ranks
  0      0-2     0.01 M      412.88 M       18 %   353 MiB  70 %          0-1
  1      3-24    1.86 M      1821.18 M      82 %   352 MiB  70 %          2-3

Samples of a full batch of 16, in 4 batch-norm groups of 4
  data rank  samples  micro-batches  ranks
  0          0-7      2 of 4         0, 2
  1          8-15     2 of 4         1, 3

Schedule, one column per time slot
stage 0  F0 F1 .  B0 .  B1
stage 1  .  F0 B0 F1 B1 .

Other layouts of 4 processes
  data=4,pipeline=1,spatial=1  possible: 501 MiB in the fullest process, 0.44 times this plan's step time, as predicted
  data=1,pipeline=4,spatial=1  possible: 323 MiB in the fullest process, 1.97 times this plan's step time, as predicted
  data=2,pipeline=1,spatial=2  possible: 533 MiB in the fullest process, 0.47 times this plan's step time, as predicted
  data=1,pipeline=2,spatial=2  possible: 399 MiB in the fullest process, 0.87 times this plan's step time, as predicted
  data=1,pipeline=1,spatial=4  possible: 590 MiB in the fullest process, 0.50 times this plan's step time, as predicted
)");
}

TEST(PlanReport, ReportsARefusalOfTrain) {
  configs::RunConfig config = config_of("data=4", 4);
  config.image_height = 64;
  config.micro_batch_size = 4;
  const std::string text = plan_report_text(make_plan_report(config, 4, false));
  EXPECT_THAT(text, HasSubstr("data=1,pipeline=1,spatial=4  refused: --layout "
                              "spatial=4: an image is cut"));
  EXPECT_THAT(text, HasSubstr("4 ranks > 64 rows / 32 = 2 blocks"));
  EXPECT_THAT(text, Not(HasSubstr("Schedule")));
}

TEST(PlanReport, UnevenSharesAreListed) {
  configs::RunConfig config = config_of("data=3", 4);
  config.micro_batch_size = 4;
  const PlanReport report = make_plan_report(config, 3, false);
  const std::string text = plan_report_text(report);
  // Groups are not split, so one of the three ranks gets two of four groups.
  EXPECT_THAT(text, HasSubstr("0          0-7      2 of 4"));
  EXPECT_THAT(text, HasSubstr("1          8-11     2: 8-11, none"));
  EXPECT_THAT(text, HasSubstr("2          12-15    2: 12-15, none"));
}

TEST(PlanReport, AStageThatIsIdleForLackOfMicroBatchesIsReported) {
  const std::string note =
      "one micro-batch: a stage works while the others wait; smaller groups, "
      "for example --bn-group 4 from the start of a run, make more of them";
  EXPECT_THAT(
      plan_report_text(make_plan_report(config_of("pipeline=2", 0), 2, false)),
      HasSubstr(note));
  EXPECT_THAT(
      plan_report_text(make_plan_report(config_of("pipeline=2", 4), 2, false)),
      Not(HasSubstr("one micro-batch")));
}

TEST(PlanReport, OneJsonDocumentHoldsEveryRank) {
  const Json json = Json::parse(plan_report_json(
      make_plan_report(config_of("data=2,pipeline=2,spatial=2", 2), 8, true)));
  EXPECT_EQ(json["exit_code"], 0);
  EXPECT_EQ(json["plan"]["stage_begins"], Json({0, 5}));
  EXPECT_EQ(json["plan"]["layout"]["spatial_parallel_size"], 2);
  EXPECT_EQ(json["num_classes"], 80);
  ASSERT_EQ(json["ranks"].size(), 8u);
  const Json& last = json["ranks"][7];
  EXPECT_EQ(last["pipeline_stage"], 1);
  EXPECT_EQ(last["data_parallel_rank"], 1);
  EXPECT_EQ(last["spatial_rank"], 1);
  EXPECT_EQ(last["samples"], Json({8, 16}));
  EXPECT_EQ(last["micro_batches"].size(), 4u);
  EXPECT_EQ(json["batch_norm_groups"].size(), 8u);
  EXPECT_EQ(json["stages"][1]["rows"], Json({5, 25}));
  EXPECT_NEAR(json["stages"][0]["share"].get<double>() +
                  json["stages"][1]["share"].get<double>(),
              1, 1e-12);
  EXPECT_THAT(json["schedule"].get<std::string>(), HasSubstr("stage 1"));
  // 8 = 2 x 2 x 2 has ten ordered factorisations; one is the plan's.
  ASSERT_EQ(json["other_layouts"].size(), 9u);
  for (const Json& other : json["other_layouts"]) {
    EXPECT_EQ(other["admissible"], other.contains("relative_step_time"));
  }
}

TEST(PlanReport, ManyRanksAreCutShortForPeopleOnly) {
  configs::RunConfig config = config_of("data=64", 1);
  config.global_batch_size = 64;
  const PlanReport report = make_plan_report(config, 64, false);
  EXPECT_THAT(plan_report_text(report), HasSubstr("  ... 48 more\n"));
  EXPECT_EQ(Json::parse(plan_report_json(report))["ranks"].size(), 64u);
  config.layout = plan::parse_layout("data=1000");
  config.global_batch_size = 1000;
  const Json json =
      Json::parse(plan_report_json(make_plan_report(config, 1000, false)));
  EXPECT_EQ(json["ranks"].size(), 256u);
  EXPECT_EQ(json["ranks_left_out"], 744);
}

TEST(PlanReport, ARefusalOfTrainIsAnErrorHereToo) {
  EXPECT_THROW(make_plan_report(config_of("pipeline=20", 0), 20, false), Error);
}

// At 128 pixels, multi-scale uses 64, 96, 128, 160 and 192 pixels.
TEST(PlanReport, WithMultiScaleWorkIsThatOfTheMeanSize) {
  configs::RunConfig config = config_of("", 0);
  config.image_height = config.image_width = 128;
  const auto work = [&] {
    const PlanReport report = make_plan_report(config, 1, false);
    const Json json = Json::parse(plan_report_json(report));
    return json.at("stages").at(0).at("multiply_adds").get<double>();
  };
  const double of_one = work();
  config.multi_scale = true;
  EXPECT_NEAR(work() / of_one, 18432.0 / (128 * 128), 1e-9);
  EXPECT_THAT(plan_report_text(make_plan_report(config, 1, false)),
              HasSubstr("forward in the mean of its sizes, and predicted"));
}

}  // namespace
}  // namespace headroom::cli
