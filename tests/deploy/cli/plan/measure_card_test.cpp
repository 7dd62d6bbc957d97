#include "deploy/cli/plan/measure_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;

std::string steps(const std::vector<double>& seconds) {
  std::string text;
  for (const double one : seconds) {
    text += "{\"step\":0,\"seconds\":" + std::to_string(one) + "}\n";
  }
  return text;
}

TEST(MeasureCard, TheFirstStepsDoNotCount) {
  EXPECT_EQ(median_step(""), std::nullopt);
  const std::string seven = steps({9, 9, 9, 9, 9, 1, 3});
  EXPECT_EQ(median_step(seven), std::nullopt);
  EXPECT_EQ(median_step(seven + steps({2})), 2);
  EXPECT_EQ(median_step(seven + steps({2}) + "{\"seconds\":4"), 2);
}

TEST(MeasureCard, TwoStepsTellLayersFromTheRest) {
  configs::CardMeasurement one;
  // 10 ms, and 1 ms for each image.
  fit_steps({64, 0.074}, StepTime{32, 0.042}, 0.0005, one);
  EXPECT_NEAR(one.time_scale, 2, 1e-9);
  EXPECT_NEAR(one.seconds_beside_layers, 0.01, 1e-9);
  EXPECT_EQ(one.images, 64);
  EXPECT_EQ(one.seconds, 0.074);
}

TEST(MeasureCard, WithoutASmallerAndShorterStepAllIsOfTheLayers) {
  for (const std::optional<StepTime>& smaller :
       {std::optional<StepTime>(), {StepTime{32, 0.2}}, {StepTime{32, 0.01}}}) {
    configs::CardMeasurement one;
    fit_steps({64, 0.064}, smaller, 0.0005, one);
    EXPECT_NEAR(one.time_scale, 2, 1e-9);
    EXPECT_EQ(one.seconds_beside_layers, 0);
  }
}

std::string refusal(const std::vector<std::string>& more,
                    const std::string& library = HEADROOM_FAKE_NVML) {
  std::vector<std::string> words = {"plan", "--measure"};
  words.insert(words.end(), more.begin(), more.end());
  try {
    card_to_measure(parse_command_line(words),
                    nvml::Nvml(library, nvml::CudaEnvironment()));
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    return error.what();
  }
  return "";
}

TEST(MeasureCard, ACardInUseIsRefused) {
  EXPECT_THAT(
      refusal({}),
      ::testing::AllOf(HasSubstr("--measure needs a card alone, and card 0"),
                       HasSubstr("Fake H80"),
                       HasSubstr("process 4001: 12 GiB, process 4002: 7 GiB"),
                       HasSubstr("or give --images-per-second N")));
  EXPECT_THAT(refusal({"--device", "1"}), HasSubstr("process 4003"));
  EXPECT_THAT(refusal({"--device", "5"}), HasSubstr("no card 5"));
}

TEST(MeasureCard, WithoutACardItSaysWhatToType) {
  EXPECT_THAT(refusal({}, "/nowhere/libnvidia-ml.so.1"),
              ::testing::AllOf(HasSubstr("--measure needs a card: "),
                               HasSubstr("give --images-per-second N")));
  EXPECT_THAT(refusal({"--device", "cpu"}),
              HasSubstr("--measure is for a card, and --device is cpu: give "
                        "--images-per-second N"));
}

TEST(MeasureCard, FlagsAboutOtherMachinesAreRefused) {
  for (const std::vector<std::string>& flag :
       std::vector<std::vector<std::string>>{{"--cluster", "p5.48xlarge"},
                                             {"--gpu", "T4"},
                                             {"--gpu-memory", "8GiB"}}) {
    EXPECT_THAT(refusal(flag), HasSubstr("of this machine, " + flag[0]));
  }
  EXPECT_THAT(refusal({"--images-per-second", "20"}),
              HasSubstr("--measure makes one plan, and --images-per-second was "
                        "given, too: leave --images-per-second out"));
}

}  // namespace
}  // namespace headroom::cli
