#include "configs/flags.h"

#include <gtest/gtest.h>

#include <set>

#include "configs/options.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::configs {
namespace {

TEST(Flags, EachSetsKnownKeysAndSwitchesAreSwitches) {
  for (const Option& option : run_options()) {
    for (const std::string& name : option.names) {
      EXPECT_EQ(find_flag(name), &option);
      EXPECT_FALSE(option.commands.empty()) << name;
      EXPECT_EQ(is_switch(option),
                std::holds_alternative<bool RunConfig::*>(option.member))
          << name;
    }
    if (option.second_key.empty()) continue;
    EXPECT_NE(find_key(option.second_key), nullptr) << option.key;
  }
  EXPECT_EQ(find_flag("--img-sz"), nullptr);
}

// The help prints a heading whenever the group changes, so the flags of a group
// must follow each other for each heading to be printed once.
TEST(Flags, FlagsOfAGroupStandTogether) {
  std::set<std::string> seen;
  std::string group;
  for (const Option& option : run_options()) {
    if (option.names.empty() || option.group == group) continue;
    group = option.group;
    EXPECT_TRUE(seen.insert(group).second) << option.key;
  }
}

TEST(Flags, BecomeARunConfig) {
  const RunConfig config =
      run_config_from_flags("train", {{"--data", {"d.yaml"}},
                                      {"--img", {"320"}},
                                      {"--batch", {"32"}},
                                      {"--cos-lr", {}},
                                      {"--resume", {}},
                                      {"--host-memory-limit", {"2GiB"}},
                                      {"--precision", {"fp64"}},
                                      {"--set", {"hyp.lr0=0.5"}}});
  RunConfig expected;
  expected.data = "d.yaml";
  expected.image_height = expected.image_width = 320;
  expected.global_batch_size = 32;
  expected.cos_lr = true;
  expected.resume = "latest";
  expected.host_memory_limit = int64_t{2} << 30;
  expected.precision = Precision::kFp64;
  expected.hyp.lr0 = 0.5;
  EXPECT_EQ(config, expected);
}

TEST(Flags, ImageSizesAndFolders) {
  const RunConfig config = run_config_from_flags(
      "val", {{"--imgsz", {"384", "640"}}, {"--resume", {"runs/train/exp3"}}});
  EXPECT_EQ(config.command, "val");
  EXPECT_EQ(config.image_height, 384);
  EXPECT_EQ(config.image_width, 640);
  EXPECT_EQ(config.resume, "runs/train/exp3");
}

TEST(Flags, LaterSourcesWin) {
  const testing::TemporaryFolder folder;
  const std::string hyp =
      folder.write("hyp.yaml", "lr0: 0.3\nlrf: 0.3\nbox: 0.3\n");
  const std::string run = folder.write(
      "run.yaml",
      "epochs: 7\nseed: 7\nhyp:\n  lr0: 0.7\n  cls: 0.7\n  lrf: 0.7\n");
  // The order of the flags does not matter: --config is applied first, then
  // --hyp, then the rest in order.
  const RunConfig config =
      run_config_from_flags("train", {{"--set", {"hyp.box=0.1"}},
                                      {"--epochs", {"8"}},
                                      {"--hyp", {hyp}},
                                      {"--set", {"epochs=9", "hyp.box=0.2"}},
                                      {"--config", {run}}});
  EXPECT_EQ(config.seed, 7u);
  EXPECT_EQ(config.epochs, 9);
  EXPECT_EQ(config.hyp.lr0, 0.3);
  EXPECT_EQ(config.hyp.cls, 0.7);
  EXPECT_EQ(config.hyp.box, 0.2);
  EXPECT_EQ(config.hyp.obj, 1.0);
  EXPECT_EQ(config.hyp_file, hyp);
}

TEST(Flags, ARunFileMayNameItsHyperparameters) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.write(
      "run.yaml", "hyp_file: no-augmentation\nhyp: {mosaic: 0.5, lr0: 0.7}\n");
  const RunConfig config =
      run_config_from_flags("train", {{"--config", {run}}});
  EXPECT_EQ(config.hyp.mosaic, 0.5);  // the file's own entries have priority
  EXPECT_EQ(config.hyp.lr0, 0.7);
  EXPECT_EQ(config.hyp.fliplr, 0);
  EXPECT_EQ(config.hyp_file, "no-augmentation");
  EXPECT_EQ(run_config_from_flags(
                "train", {{"--config", {run}}, {"--hyp", {"scratch-low"}}})
                .hyp,
            Hyperparameters());
}

// A run file written by a run requests the same run when it is read.
TEST(Flags, AWrittenRunFileReadsBack) {
  const testing::TemporaryFolder folder;
  const RunConfig config =
      run_config_from_flags("train", {{"--hyp", {"scratch-high"}},
                                      {"--set", {"hyp.lr0=0.25"}},
                                      {"--batch", {"12"}}});
  const std::string run = folder.write("run.yaml", to_yaml(config));
  EXPECT_EQ(run_config_from_flags("train", {{"--config", {run}}}), config);
}

TEST(Flags, AResumedRunKeepsWhatNoFlagNames) {
  const testing::TemporaryFolder folder;
  RunConfig saved;
  saved.epochs = 7;
  saved.hyp_file = "a file that is gone.yaml";
  saved.hyp.lr0 = 0.7;
  RunConfig expected = saved;
  expected.processes = 4;
  expected.hyp.box = 0.3;
  EXPECT_EQ(overlay_flags(saved,
                          {{"--processes", {"4"}}, {"--set", {"hyp.box=0.3"}}}),
            expected);
  EXPECT_EQ(overlay_flags(saved, {{"--hyp", {"scratch-low"}}}).hyp,
            Hyperparameters());
  EXPECT_EQ(testing::refusal_of([&] {
              overlay_flags(saved, {{"--config", {"x"}}});
            }),
            "[config] --config: a resumed run has its own run.yaml: give "
            "single flags or --set KEY=VALUE instead");
}

TEST(Flags, ThatChangeARunAreThoseOfTheKeysThatDiffer) {
  RunConfig before, after;
  before.layout = plan::ParallelLayout{.data_parallel_size = 2};
  after.global_batch_size = 8;
  after.image_height = after.image_width = 320;
  after.epochs = 7;  // "epochs" is not one of the keys
  const std::vector<std::string> keys = {"layout", "image_height",
                                         "global_batch_size", "zero_stage"};
  std::vector<FlagUse> uses = changed_flags(before, after, keys);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].spelling, "--img");
  EXPECT_EQ(uses[0].values, std::vector<std::string>{"320"});
  EXPECT_EQ(uses[1].spelling, "--batch");
  EXPECT_EQ(uses[1].values, std::vector<std::string>{"8"});
  after.image_width = 640;
  uses = changed_flags(before, after, {"image_height"});
  EXPECT_EQ(uses.at(0).values, (std::vector<std::string>{"320", "640"}));
}

TEST(Flags, AnExplicitZeroOfProcessesIsRefused) {
  const auto refusal = [](const FlagUse& use) {
    return testing::refusal_of([&] { run_config_from_flags("train", {use}); });
  };
  EXPECT_EQ(refusal({"--processes", {"0"}}),
            "[config] --processes 0: a run needs at least one process: leave "
            "the flag out to have the number chosen");
  EXPECT_EQ(refusal({"--set", {"processes=0"}}),
            "[config] --set processes=0: a run needs at least one process: "
            "leave it out to have the number chosen");
}

TEST(Flags, WrongValuesNameTheFlag) {
  const auto refusal = [](const FlagUse& use) {
    return testing::refusal_of([&] { run_config_from_flags("train", {use}); });
  };
  EXPECT_EQ(refusal({"--epochs", {"ten"}}),
            "[config] --epochs ten: 'ten' is not a whole number: for example "
            "--epochs 100");
  EXPECT_EQ(refusal({"--img", {"640", "x"}}),
            "[config] --img x: 'x' is not a whole number: for example --img "
            "640");
  EXPECT_EQ(refusal({"--precision", {"fp8"}}),
            "[config] --precision fp8: 'fp8' is not auto, fp32, bf16, fp16 or "
            "fp64: for example --precision auto");
  EXPECT_EQ(refusal({"--set", {"hyp.lr0"}}),
            "[config] --set hyp.lr0: there is no '=': write --set KEY=VALUE, "
            "for example --set hyp.lr0=0.02");
  EXPECT_EQ(refusal({"--freeze", {"0", "2", "3"}}),
            "[config] --freeze 0 2 3: layers are taken from the first on, "
            "without a gap: write --freeze N for the first N layers");
  EXPECT_EQ(refusal({"--task", {"study"}}),
            "[config] --task study: this choice is not in this version: leave "
            "it out, and run headroom val once for each --img");
  EXPECT_EQ(refusal({"--config", {"/nowhere/run.yaml"}}),
            "[config] there is no file /nowhere/run.yaml: check the path");
}

TEST(Flags, LayersToFreezeMayBeListedAsInYolov5) {
  const auto frozen = [](const std::vector<std::string>& words) {
    return run_config_from_flags("train", {{"--freeze", words}}).freeze;
  };
  EXPECT_EQ(frozen({"10"}), 10);
  EXPECT_EQ(frozen({"0", "1", "2"}), 3);
  EXPECT_EQ(frozen({"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}),
            11);
}

}  // namespace
}  // namespace headroom::configs
