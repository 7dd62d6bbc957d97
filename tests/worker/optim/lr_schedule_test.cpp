#include "worker/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "configs/recipe.h"
#include "parallel/base/check.h"
#include "tests/support/parity.h"

namespace headroom::optim {
namespace {

ScheduleOptions small_run() {
  ScheduleOptions options;
  options.epochs = 10;
  options.steps_per_epoch = 2;
  options.global_batch_size = 64;
  return options;
}

TEST(LrScheduleTest, WarmupIncludesBothEnds) {
  ScheduleOptions options = small_run();
  options.steps_per_epoch = 11;
  EXPECT_EQ(last_warmup_step(options), 100);

  const StepSettings first = settings_at(options, 0, 0);
  EXPECT_EQ(first.lr[kBiasGroup], 0.1);
  EXPECT_EQ(first.lr[kWeightGroup], 0);
  EXPECT_EQ(first.lr[kNormWeightGroup], 0);
  EXPECT_EQ(first.momentum, 0.8);

  const StepSettings last = settings_at(options, 100, 9);
  const StepSettings after = settings_at(options, 101, 9);
  EXPECT_EQ(last.lr, after.lr);
  EXPECT_EQ(last.momentum, after.momentum);
  EXPECT_NE(settings_at(options, 99, 9).lr, after.lr);
}

// As in YOLOv5's logs, an epoch after the warm-up has the rate of the epoch
// before.
TEST(LrScheduleTest, AfterTheWarmup_AnEpochHasTheRateOfTheEpochBefore) {
  ScheduleOptions options = small_run();
  options.steps_per_epoch = 40;  // the warm-up ends within epoch 3, at step 120
  const auto rate = [&](int64_t epoch, int64_t step_in_epoch) {
    const StepSettings settings =
        settings_at(options, 40 * epoch + step_in_epoch, epoch);
    EXPECT_EQ(settings.lr[kBiasGroup], settings.lr[kWeightGroup]);
    return settings.lr[kWeightGroup];
  };
  EXPECT_EQ(rate(3, 0), 0.01 * lr_factor(options, 3));
  EXPECT_EQ(rate(3, 39), 0.01 * lr_factor(options, 3));
  for (int64_t epoch = 4; epoch < 10; ++epoch) {
    EXPECT_EQ(rate(epoch, 0), 0.01 * lr_factor(options, epoch - 1)) << epoch;
    EXPECT_EQ(rate(epoch, 39), 0.01 * lr_factor(options, epoch - 1)) << epoch;
  }
  options.hyp.warmup_epochs = 0;
  EXPECT_EQ(rate(0, 0), 0.01);
  EXPECT_EQ(rate(1, 0), 0.01);
  EXPECT_EQ(rate(2, 0), 0.01 * lr_factor(options, 1));
}

TEST(LrScheduleTest, NoWarmupAtAll) {
  ScheduleOptions options = small_run();
  options.hyp.warmup_epochs = 0;
  options.hyp.lr0 = 1e-5;
  options.hyp.lrf = 1;
  options.global_batch_size = 16;
  EXPECT_EQ(last_warmup_step(options), -1);
  for (const int64_t step : {0, 1, 50, 100, 1000}) {
    const StepSettings settings = settings_at(options, step, step / 2 % 10);
    for (const double lr : settings.lr) EXPECT_EQ(lr, 1e-5);
    EXPECT_EQ(settings.momentum, 0.937);
    EXPECT_EQ(settings.accumulate, 4);
  }
}

TEST(LrScheduleTest, AccumulationIsRoundedAndAtLeastOne) {
  ScheduleOptions options = small_run();
  options.hyp.warmup_epochs = 0;
  const auto accumulate = [&](int64_t batch) {
    options.global_batch_size = batch;
    return settings_at(options, 0, 0).accumulate;
  };
  EXPECT_EQ(accumulate(1), 64);
  EXPECT_EQ(accumulate(24), 3);
  EXPECT_EQ(accumulate(64), 1);
  EXPECT_EQ(accumulate(128), 1);  // round(0.5) is 0, to even
  EXPECT_EQ(accumulate(1000), 1);
}

TEST(LrScheduleTest, ImpossibleOptionsAreRefused) {
  ScheduleOptions options = small_run();
  options.steps_per_epoch = 0;
  EXPECT_THROW(settings_at(options, 0, 0), CheckFailure);
  EXPECT_THROW(settings_at(small_run(), -1, 0), CheckFailure);
}

TEST(LrScheduleParityTest, Factors) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json factors =
      load_parity_json("schedules.json")["lr_factor"];
  for (const auto& [lrf, kinds] : factors.items()) {
    ScheduleOptions options = small_run();
    options.hyp.lrf = std::stod(lrf);
    for (const bool is_cosine : {false, true}) {
      options.cos_lr = is_cosine;
      const auto expected =
          kinds[is_cosine ? "cosine" : "linear"].get<std::vector<double>>();
      ASSERT_EQ(expected.size(), 11u);
      for (size_t epoch = 0; epoch < expected.size(); ++epoch)
        EXPECT_NEAR(lr_factor(options, static_cast<int64_t>(epoch)),
                    expected[epoch], 1e-15)
            << lrf << (is_cosine ? " cosine " : " linear ") << epoch;
    }
  }
}

TEST(LrScheduleParityTest, WarmupAndAccumulation) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json runs =
      load_parity_json("schedules.json")["warmup_nominal64"];
  ASSERT_EQ(runs.size(), 5u);
  for (const nlohmann::json& run : runs) {
    ScheduleOptions options;
    options.global_batch_size = run["batch"];
    options.steps_per_epoch = run["batches_per_epoch"];
    options.epochs = run["epochs"];
    options.hyp.lrf = run["lrf"];
    options.hyp.lr0 = run["lr0"];
    const std::string what = "batch " + run["batch"].dump();
    EXPECT_EQ(last_warmup_step(options), run["nw"].get<int64_t>()) << what;
    EXPECT_NEAR(weight_decay(options), run["weight_decay_scaled"], 1e-18)
        << what;
    for (const nlohmann::json& sample : run["samples"]) {
      const StepSettings settings =
          settings_at(options, sample["ni"], sample["epoch"]);
      const std::string at = what + " step " + sample["ni"].dump();
      EXPECT_EQ(static_cast<double>(settings.accumulate),
                sample["accumulate"].get<double>())
          << at;
      EXPECT_EQ(settings.lr[kWeightGroup], settings.lr[kNormWeightGroup]);
      EXPECT_NEAR(settings.momentum, sample["momentum"], 1e-15) << at;
      // The rates are not compared after the warm-up. The vectors then have the
      // rate of the epoch itself, without the scheduler's delay of one epoch.
      if (sample["epoch"] > last_warmup_step(options) / options.steps_per_epoch)
        continue;
      EXPECT_NEAR(settings.lr[kBiasGroup], sample["lr_bias"], 1e-15) << at;
      EXPECT_NEAR(settings.lr[kWeightGroup], sample["lr_other"], 1e-15) << at;
    }

    const auto expected =
        run["optimizer_step_at_iterations"].get<std::vector<int64_t>>();
    const int64_t num_steps =
        std::min(last_warmup_step(options) + 60,
                 options.epochs * options.steps_per_epoch);
    std::vector<int64_t> optimizer_steps;
    int64_t last = -1;
    for (int64_t step = 0; step < num_steps; ++step) {
      const int64_t epoch = step / options.steps_per_epoch;
      if (!is_optimizer_step(step, last,
                             settings_at(options, step, epoch).accumulate))
        continue;
      optimizer_steps.push_back(step);
      last = step;
    }
    EXPECT_EQ(optimizer_steps, expected) << what;
  }
}

// The rates and momenta of the ultralytics package, by its own training steps.
TEST(LrScheduleParityTest, OfTheUltralyticsRecipe) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json scenarios = load_parity_json("u/training.json");
  for (const char* name : {"v5u_sgd", "v8_sgd", "v8_auto"}) {
    const nlohmann::json& scenario = scenarios[name];
    configs::RunConfig config;
    configs::apply_recipe(config, configs::kUltralyticsRecipe);
    config.epochs = scenario["epochs"];
    config.global_batch_size = scenario["batch"];
    if (scenario["optimizer"] == "SGD") {
      config.optimizer = configs::OptimizerKind::kSgd;
    }
    configs::settle_optimizer(config, /*images=*/8, /*classes=*/3);
    EXPECT_EQ(to_string(config.optimizer), scenario["optimizer"]) << name;
    EXPECT_EQ(config.hyp.lr0, scenario["lr0"].get<double>()) << name;
    EXPECT_EQ(config.hyp.momentum, scenario["momentum"].get<double>()) << name;
    ScheduleOptions options;
    options.hyp = config.hyp;
    options.epochs = config.epochs;
    options.steps_per_epoch = scenario["batches_per_epoch"];
    options.global_batch_size = options.nominal_batch_size =
        config.global_batch_size;
    options.warms_momentum = config.optimizer == configs::OptimizerKind::kSgd;
    options.short_warmup = config.short_warmup;
    options.lr_of_epoch = config.lr_of_epoch;
    EXPECT_EQ(last_warmup_step(options),
              scenario["warmup_iterations"].get<int64_t>());
    for (const nlohmann::json& iteration : scenario["iterations"]) {
      const StepSettings settings =
          settings_at(options, iteration["ni"], iteration["epoch"]);
      const std::string at = name + (" step " + iteration["ni"].dump());
      EXPECT_NEAR(settings.lr[kWeightGroup], iteration["lr"][0], 1e-15) << at;
      EXPECT_NEAR(settings.lr[kNormWeightGroup], iteration["lr"][1], 1e-15)
          << at;
      EXPECT_NEAR(settings.lr[kBiasGroup], iteration["lr"][2], 1e-15) << at;
      EXPECT_NEAR(settings.momentum, iteration["momentum"], 1e-15) << at;
    }
  }
}

TEST(LrScheduleTest, AShortWarmupEndsBeforeTheLastEpoch) {
  ScheduleOptions options = small_run();
  options.short_warmup = true;
  options.steps_per_epoch = 7;
  EXPECT_EQ(last_warmup_step(options), 21);
  options.epochs = 2;
  EXPECT_EQ(last_warmup_step(options), 7);
  options.epochs = 1;
  EXPECT_EQ(last_warmup_step(options), -1);
  EXPECT_EQ(settings_at(options, 0, 0).lr[kWeightGroup], 0.01);
}

TEST(LrScheduleTest, AdamsBeta1IsNotWarmedUp) {
  ScheduleOptions options;
  options.steps_per_epoch = 100;
  options.epochs = 10;
  options.warms_momentum = false;
  const StepSettings settings = settings_at(options, 10, 0);
  EXPECT_EQ(settings.momentum, options.hyp.momentum);
  options.warms_momentum = true;
  EXPECT_LT(settings_at(options, 10, 0).momentum, options.hyp.momentum);
  EXPECT_EQ(settings_at(options, 10, 0).lr, settings.lr);
}

}  // namespace
}  // namespace headroom::optim
