#include "configs/run_config.h"

#include <gtest/gtest.h>

#include "configs/options.h"
#include "tests/support/refusal.h"

namespace headroom::configs {
namespace {

std::string refusal(const std::string& text) {
  return testing::refusal_of([&] { parse_run_config(text, "run.yaml"); });
}

std::string set_refusal(const std::string& key, const std::string& value) {
  RunConfig config;
  return testing::refusal_of([&] { set_value(config, key, value); });
}

// Returns a value that is not the default and is easily lost in a conversion.
std::string unusual_value(const Option& option) {
  if (!option.choices.empty()) return option.choices.back();
  const std::string type = type_name(option);
  if (type == "true or false") {
    return default_text(option) == "true" ? "false" : "true";
  }
  if (type == "auto, fp32, bf16, fp16 or fp64") return "fp64";
  if (type == "a number") return "0.12345678901234568";
  if (option.key == "layout") return "data=2,spatial=3";
  if (type == "text") return "\x01 # 'a': \"b\\c\" \xC3\xA9 ~ [1]\n2";
  if (type == "a whole number of at least 0") return "18446744073709551615";
  return "9007199254740993";  // a double cannot represent this number
}

TEST(RunConfig, EveryKeySurvivesYaml) {
  for (const Option& option : run_options()) {
    RunConfig config;
    ASSERT_TRUE(set_from_text(config, option, unusual_value(option)))
        << option.key;
    ASSERT_NE(config, RunConfig()) << option.key;
    const std::string text = to_yaml(config);
    EXPECT_EQ(parse_run_config(text, "run.yaml"), config) << option.key;
    EXPECT_EQ(value_text(parse_run_config(text, "run.yaml"), option),
              unusual_value(option));
  }
}

TEST(RunConfig, DefaultsAndAllUnusualTogetherSurviveYaml) {
  RunConfig config;
  EXPECT_EQ(parse_run_config(to_yaml(config), "run.yaml"), config);
  for (const Option& option : run_options()) {
    ASSERT_TRUE(set_from_text(config, option, unusual_value(option)));
  }
  EXPECT_EQ(parse_run_config(to_yaml(config), "run.yaml"), config);
}

TEST(RunConfig, TextsThatLookLikeOtherThingsSurviveYaml) {
  for (const char* name : {"", "true", "123", "~", "null", "- a", "{}", "#",
                           " lead", "trail ", "\x7f", "a\rb", "\xE2\x98\x83"}) {
    RunConfig config;
    config.name = name;
    EXPECT_EQ(parse_run_config(to_yaml(config), "f").name, name);
  }
}

TEST(RunConfig, AnInvalidLayoutIsRefusedWithItsPlace) {
  EXPECT_EQ(testing::refusal_of([] {
              parse_run_config("seed: 1\nlayout: data=2,data=2\n", "run.yaml");
            }),
            "[config] run.yaml:2:9: --layout data=2,data=2: the axis data is "
            "named twice: write for example data=2,pipeline=1,spatial=1");
}

TEST(RunConfig, ReadsARunFile) {
  const RunConfig config = parse_run_config(
      "data: bccd/data.yaml\n"
      "global_batch_size: 32\n"
      "cos_lr: yes\n"
      "precision: fp64\n"
      "host_memory_limit: 2GiB\n"
      "project:\n"
      "name: 7\n"
      "hyp:\n"
      "  lr0: 1e-3\n"
      "  mosaic: 0\n",
      "run.yaml");
  RunConfig expected;
  expected.data = "bccd/data.yaml";
  expected.global_batch_size = 32;
  expected.cos_lr = true;
  expected.precision = Precision::kFp64;
  expected.host_memory_limit = int64_t{2} << 30;
  expected.name = "7";
  expected.hyp.lr0 = 1e-3;
  expected.hyp.mosaic = 0;
  EXPECT_EQ(config, expected);
  EXPECT_EQ(parse_run_config("", "run.yaml"), RunConfig());
  EXPECT_EQ(parse_run_config("hyp:\n", "run.yaml"), RunConfig());
}

TEST(RunConfig, UnknownKeysGetTheNearest) {
  EXPECT_EQ(refusal("seed: 1\nepoch: 3\n"),
            "[config] run.yaml:2:1: unknown key 'epoch': did you mean "
            "'epochs'?");
  EXPECT_EQ(refusal("batch: 3\n"),
            "[config] run.yaml:1:1: unknown key 'batch': did you mean "
            "'global_batch_size'?");
  EXPECT_EQ(refusal("lr0: 3\n"),
            "[config] run.yaml:1:1: unknown key 'lr0': did you mean "
            "'hyp.lr0'?");
  EXPECT_EQ(refusal("hyp:\n  mosiac: 1\n"),
            "[config] run.yaml:2:3: unknown key 'hyp.mosiac': did you mean "
            "'hyp.mosaic'?");
  EXPECT_EQ(refusal("hyp.lr0: 1\n"),
            "[config] run.yaml:1:1: unknown key 'hyp.lr0': write it below "
            "'hyp:'");
  EXPECT_EQ(refusal("wavelength: 1\n"),
            "[config] run.yaml:1:1: unknown key 'wavelength': headroom train "
            "--help lists the keys");
}

TEST(RunConfig, WrongTypesAreNamedByPlace) {
  EXPECT_EQ(refusal("epochs: many\n"),
            "[config] run.yaml:1:9: epochs is 'many': write a whole number "
            "here");
  EXPECT_EQ(refusal("epochs: \"3\"\n"),
            "[config] run.yaml:1:9: epochs is '3': write a whole number here");
  EXPECT_EQ(refusal("cos_lr: 1\n"),
            "[config] run.yaml:1:9: cos_lr is '1': write true or false here");
  EXPECT_EQ(refusal("seed: -1\n"),
            "[config] run.yaml:1:7: seed is '-1': write a whole number of at "
            "least 0 here");
  EXPECT_EQ(refusal("precision: fp8\n"),
            "[config] run.yaml:1:12: precision is 'fp8': write auto, fp32, "
            "bf16, fp16 or fp64 here");
  EXPECT_EQ(refusal("backend: smoke\n"),
            "[config] run.yaml:1:10: backend is 'smoke': write auto, gloo, "
            "nccl or mpi here");
  EXPECT_EQ(refusal("host_memory_limit: lots\n"),
            "[config] run.yaml:1:20: host_memory_limit is 'lots': write a size "
            "such as 2GiB here");
  EXPECT_EQ(refusal("hyp:\n  lr0: [1]\n"),
            "[config] run.yaml:2:8: hyp.lr0 is a list: write a number here");
  EXPECT_EQ(refusal("name: {a: 1}\n"),
            "[config] run.yaml:1:7: name is a mapping: write text here");
  EXPECT_EQ(refusal("hyp: 3\n"),
            "[config] run.yaml:1:6: this is '3': write lines of the form 'key: "
            "value'");
  EXPECT_EQ(refusal("- 3\n"),
            "[config] run.yaml:1:1: this is a list: write lines of the form "
            "'key: value'");
  EXPECT_EQ(refusal("hyp:\n  lr0: .nan\n"),
            "[config] run.yaml:2:8: hyp.lr0 is '.nan': write a number here");
}

TEST(RunConfig, Set) {
  RunConfig config;
  set_value(config, "hyp.lr0", "0.02");
  set_value(config, "checkpoint_every_steps", "3");
  set_value(config, "skip_non_finite", "true");
  set_value(config, "host_memory_limit", "512 MiB");
  EXPECT_EQ(config.hyp.lr0, 0.02);
  EXPECT_EQ(config.checkpoint_every_steps, 3);
  EXPECT_TRUE(config.skip_non_finite);
  EXPECT_EQ(config.host_memory_limit, 512 << 20);
}

TEST(RunConfig, SetRefuses) {
  EXPECT_EQ(set_refusal("epoch", "3"),
            "[config] --set epoch: there is no such key: did you mean "
            "'epochs'?");
  EXPECT_EQ(set_refusal("epochs", "3.5"),
            "[config] --set epochs=3.5: '3.5' is not a whole number: for "
            "example --set epochs=100");
  EXPECT_EQ(set_refusal("rect", ""),
            "[config] --set rect=: '' is not true or false: for example --set "
            "rect=false");
  EXPECT_EQ(set_refusal("conf_thres", "0.1"),
            "[config] --set conf_thres: there is no such key: did you mean "
            "'confidence_threshold'?");
}

}  // namespace
}  // namespace headroom::configs
