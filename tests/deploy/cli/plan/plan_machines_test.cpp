#include "deploy/cli/plan/plan_machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deploy/cli/run_request.h"
#include "parallel/base/check.h"
#include "parallel/predict/time_model.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

// tests/parallel/nvml/fake_nvml.cpp: card 0 has 59 GiB left of 80, 2 has 23.
nvml::Nvml fake() { return nvml::Nvml(HEADROOM_FAKE_NVML); }

CommandLine plan(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"plan", "--cfg", "yolov5n", "--img", "320"};
  words.insert(words.end(), more.begin(), more.end());
  return parse_command_line(words);
}

std::string refusal(const std::vector<std::string>& more) {
  try {
    const CommandLine line = plan(more);
    const auto machines = machines_of(line, fake());
    if (machines) with_machines(line, *machines);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PlanMachines, NoFlagNamesAGpu) {
  EXPECT_FALSE(machines_of(plan({}), fake()));
  EXPECT_FALSE(machines_of(plan({"--device", "cpu"}), fake()));
}

TEST(PlanMachines, WhatOthersUseOfACardIsNotThePlans) {
  const auto machines = machines_of(plan({"--device", "0"}), fake());
  ASSERT_TRUE(machines);
  EXPECT_EQ(machines->num_gpus(), 1);
  EXPECT_EQ(machines->gpu_memory_bytes, 59 * kGiB);
  EXPECT_EQ(machines->budget_bytes, predict::tensor_budget(59 * kGiB));
  EXPECT_THAT(machines_text(*machines),
              HasSubstr("card 0: Fake H80, 80 GiB, others use 20 GiB of it"));
}

TEST(PlanMachines, TheFullestCardBoundsAll) {
  const auto machines = machines_of(plan({"--device", "0,2"}), fake());
  ASSERT_TRUE(machines);
  EXPECT_EQ(machines->num_gpus(), 2);
  EXPECT_EQ(machines->gpu_memory_bytes, 23 * kGiB);
}

TEST(PlanMachines, ACardIsAProcessAndALimit) {
  const CommandLine line = plan({"--device", "0,2", "--batch", "4"});
  const RunRequest request = make_run_request(
      with_machines(line, *machines_of(line, fake())), std::nullopt, 2);
  EXPECT_EQ(request.expected_workers(), 2);
  EXPECT_EQ(request.config.memory_limit, predict::tensor_budget(23 * kGiB));
  EXPECT_EQ(request.config.device, "0,2");
}

// Cards elsewhere are planned for as cards, too: nothing of the CPU's scratch.
TEST(PlanMachines, CardsThatAreNotHereArePlannedForAsCards) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{
           {"--gpu-memory", "8GiB"},
           {"--gpu-memory", "8GiB", "--device", "cpu"},
           {"--cluster", "p4d.24xlarge:2"}}) {
    CommandLine line = plan(flags);
    const RunRequest request = make_run_request(
        with_machines(line, *machines_of(line, fake())), std::nullopt, 2);
    EXPECT_EQ(request.config.device, "0");
  }
}

TEST(PlanMachines, AGivenLimitStays) {
  const CommandLine line =
      plan({"--device", "0", "--batch", "4", "--memory-limit", "2GiB"});
  const RunRequest request = make_run_request(
      with_machines(line, *machines_of(line, fake())), std::nullopt, 2);
  EXPECT_EQ(request.config.memory_limit, 2 * kGiB);
}

TEST(PlanMachines, RefusesContradictions) {
  EXPECT_EQ(refusal({"--gpu-memory", "8"}),
            "[command line] --gpu-memory 8 has no unit: write --gpu-memory "
            "8GiB");
  EXPECT_EQ(refusal({"--device", "0", "--gpu-memory", "8GiB"}),
            "[command line] --device 0 names this machine's GPUs, and "
            "--gpu-memory others: give one of them");
  EXPECT_EQ(refusal({"--device", "0", "--processes", "2"}),
            "[command line] --processes is given, but --device has 1 GPUs and "
            "runs a process on each: leave it out");
  EXPECT_THAT(refusal({"--device", "1"}), HasSubstr("there is no card 1"));
}

}  // namespace
}  // namespace headroom::cli
