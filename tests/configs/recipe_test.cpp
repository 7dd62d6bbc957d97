#include "configs/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "configs/flags.h"
#include "configs/options.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::configs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunConfig run_of(const std::vector<FlagUse>& uses) {
  return run_config_from_flags("train", uses);
}

TEST(Recipe, UltralyticsSetsItsDefaultsAndNothingElse) {
  RunConfig expected;
  expected.recipe = "ultralytics";
  expected.optimizer = OptimizerKind::kAuto;
  expected.short_warmup = expected.lr_of_epoch = true;
  expected.carry_accumulation = true;
  expected.close_mosaic = 10;
  expected.hyp.add_hue = 1;
  expected.best_metric = "mAP";
  expected.nms_iou_threshold = 0.7;
  EXPECT_EQ(run_of({{"--recipe", {"ultralytics"}}}), expected);
  EXPECT_EQ(run_of({{"--set", {"recipe=ultralytics"}}}), expected);
  EXPECT_EQ(parse_run_config("recipe: ultralytics\n", "run.yaml"), expected);
  EXPECT_EQ(run_of({{"--recipe", {"yolov5"}}}), RunConfig());
}

TEST(Recipe, FlagsOutrankItInAnyOrder) {
  for (const bool is_first : {true, false}) {
    std::vector<FlagUse> uses = {{"--close-mosaic", {"3"}},
                                 {"--optimizer", {"SGD"}},
                                 {"--set", {"short_warmup=false"}}};
    uses.insert(is_first ? uses.begin() : uses.end(),
                {"--recipe", {"ultralytics"}});
    const RunConfig config = run_of(uses);
    EXPECT_EQ(config.close_mosaic, 3);
    EXPECT_EQ(config.optimizer, OptimizerKind::kSgd);
    EXPECT_FALSE(config.short_warmup);
    EXPECT_TRUE(config.lr_of_epoch);
  }
}

TEST(Recipe, EachKeyIsUsableAlone) {
  const RunConfig config = run_of({{"--set", {"carry_accumulation=true"}},
                                   {"--set", {"hyp.add_hue=1"}},
                                   {"--optimizer", {"auto"}}});
  EXPECT_EQ(config.recipe, "yolov5");
  EXPECT_TRUE(config.carry_accumulation);
  EXPECT_EQ(config.hyp.add_hue, 1);
  EXPECT_EQ(config.optimizer, OptimizerKind::kAuto);
  EXPECT_EQ(config.close_mosaic, 0);
}

TEST(Recipe, OfARunFileIsOutrankedByItsKeysAndByTheFlag) {
  const testing::TemporaryFolder folder;
  folder.write("run.yaml",
               "close_mosaic: 4\nrecipe: ultralytics\noptimizer: AdamW\n");
  const std::string file = folder.path() / "run.yaml";
  const RunConfig config = run_of({{"--config", {file}}});
  EXPECT_EQ(config.close_mosaic, 4);
  EXPECT_EQ(config.optimizer, OptimizerKind::kAdamW);
  EXPECT_TRUE(config.short_warmup);
  const RunConfig back =
      run_of({{"--config", {file}}, {"--recipe", {"yolov5"}}});
  EXPECT_EQ(back, RunConfig());
}

TEST(Recipe, ARunsOwnFileKeepsWhatWasSettled) {
  RunConfig config = run_of({{"--recipe", {"ultralytics"}}});
  settle_optimizer(config, 205, 3);
  config.close_mosaic = 2;
  EXPECT_EQ(parse_run_config(to_yaml(config), "run.yaml"), config);
  // On a resume the recipe has no effect beyond its name.
  const RunConfig resumed =
      overlay_flags(config, {{"--recipe", {"ultralytics"}}});
  EXPECT_EQ(resumed, config);
}

TEST(Recipe, AnotherOneDoesNotTakeOverSettledRates) {
  const testing::TemporaryFolder folder;
  RunConfig config = run_of({{"--recipe", {"ultralytics"}}});
  settle_optimizer(config, 205, 3);
  EXPECT_NE(config.hyp.lr0, RunConfig().hyp.lr0);
  const std::string file = folder.write("run.yaml", to_yaml(config));
  EXPECT_EQ(run_of({{"--config", {file}}, {"--recipe", {"yolov5"}}}),
            RunConfig());
  EXPECT_EQ(
      run_of({{"--config", {file}}, {"--recipe", {"ultralytics"}}}).hyp.lr0,
      RunConfig().hyp.lr0);
}

TEST(Recipe, AnUnknownOneIsRefused) {
  EXPECT_THAT(testing::refusal_of([] {
                run_of({{"--recipe", {"yolov9"}}});
              }),
              HasSubstr("'yolov9' is not"));
}

TEST(Recipe, HoldsWhereItCanWithoutARefusal) {
  RunConfig config = run_of({{"--recipe", {"ultralytics"}}, {"--rect", {}}});
  EXPECT_NO_THROW(check_run_config(config));
  config = run_of({{"--recipe", {"ultralytics"}}, {"--synthetic-input", {}}});
  EXPECT_NO_THROW(check_run_config(config));
}

TEST(AutomaticOptimizer, AShortRunHasAdamWWithARateByItsClasses) {
  const auto rate_of = [](int64_t classes) {
    RunConfig config;
    config.optimizer = OptimizerKind::kAuto;
    settle_optimizer(config, 205, classes);
    EXPECT_EQ(config.optimizer, OptimizerKind::kAdamW);
    EXPECT_EQ(config.hyp.momentum, 0.9);
    EXPECT_EQ(config.hyp.warmup_bias_lr, 0);
    return config.hyp.lr0;
  };
  EXPECT_DOUBLE_EQ(rate_of(80), 0.000119);
  EXPECT_DOUBLE_EQ(rate_of(3), 0.001429);
  EXPECT_DOUBLE_EQ(rate_of(1), 0.002);
}

TEST(AutomaticOptimizer, ALongRunHasSgdAndSaysSo) {
  RunConfig config;
  config.optimizer = OptimizerKind::kAuto;
  config.epochs = 100;
  config.global_batch_size = 16;  // counts as 64
  RunConfig longer = config;
  settle_optimizer(config, 6400, 80);  // 10,000 iterations
  EXPECT_EQ(config.optimizer, OptimizerKind::kAdamW);
  EXPECT_EQ(settle_optimizer(longer, 6401, 80),
            "optimizer: SGD, lr0 0.01, momentum 0.9 (auto: 10100 iterations of "
            "at least 64 images, more than 10000; ultralytics would take "
            "MuSGD, which is not in this version)");
  EXPECT_EQ(longer.optimizer, OptimizerKind::kSgd);
  EXPECT_EQ(longer.hyp.lr0, 0.01);
  EXPECT_EQ(longer.hyp.momentum, 0.9);
}

TEST(AutomaticOptimizer, RatesOfTheUserStay) {
  RunConfig config;
  config.optimizer = OptimizerKind::kAuto;
  config.hyp.lr0 = 0.003;
  EXPECT_THAT(settle_optimizer(config, 100, 3),
              HasSubstr("3 classes; hyp.lr0 as given)"));
  EXPECT_EQ(config.hyp.lr0, 0.003);
  EXPECT_EQ(settle_optimizer(config, 100, 3), "");
}

TEST(HeadSettings, GainsOfOtherHeadsAreSaid) {
  RunConfig config;
  EXPECT_THAT(check_head_settings(config, true), IsEmpty());
  EXPECT_THAT(check_head_settings(config, false), IsEmpty());
  config.recipe = kUltralyticsRecipe;
  EXPECT_THAT(check_head_settings(config, true),
              ElementsAre(HasSubstr("recipe ultralytics: the gains are")));
  config.hyp.dfl = 2;
  EXPECT_THAT(check_head_settings(config, true),
              ElementsAre(HasSubstr("hyp.dfl has no effect: the gains are")));
  config.hyp.obj = 2;
  config.hyp.anchor_t = 3;
  EXPECT_THAT(check_head_settings(config, false),
              ElementsAre(HasSubstr("hyp.obj, hyp.anchor_t has no effect")));
}

TEST(HeadSettings, LabelSmoothingAndFocalLossNeedAnchors) {
  RunConfig config;
  config.label_smoothing = 0.1;
  EXPECT_NO_THROW(check_head_settings(config, true));
  EXPECT_THAT(testing::refusal_of([&] { check_head_settings(config, false); }),
              HasSubstr("label_smoothing is for models "
                        "with anchors"));
  config = {};
  config.hyp.fl_gamma = 1.5;
  EXPECT_THROW(check_head_settings(config, false), Error);
}

TEST(HeadSettings, ATeacherNeedsAnchors) {
  RunConfig config;
  config.teacher = "best.safetensors";
  EXPECT_NO_THROW(check_head_settings(config, true));
  EXPECT_THAT(testing::refusal_of([&] { check_head_settings(config, false); }),
              HasSubstr("--teacher is for models with anchors"));
}

TEST(HyperparameterFile, OfModelsWithoutAnchorsHasTheirGains) {
  const testing::TemporaryFolder folder;
  folder.write("hyp.yaml", "box: 7\ncls: 0.4\ndfl: 1.2\nlr0: 0.02\n");
  RunConfig config;
  load_hyperparameters(config, folder.path() / "hyp.yaml");
  EXPECT_EQ(config.hyp.anchor_free_box, 7);
  EXPECT_EQ(config.hyp.anchor_free_cls, 0.4);
  EXPECT_EQ(config.hyp.dfl, 1.2);
  EXPECT_EQ(config.hyp.box, Hyperparameters().box);
  EXPECT_EQ(config.hyp.lr0, 0.02);
  // YOLOv5's file leaves them alone.
  RunConfig older;
  load_hyperparameters(older, "scratch-low");
  EXPECT_EQ(older.hyp, Hyperparameters());
}

}  // namespace
}  // namespace headroom::configs
