#include "deploy/cli/plan/plan_machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deploy/cli/run_request.h"
#include "parallel/base/check.h"
#include "parallel/predict/nccl_memory.h"
#include "parallel/predict/time_model.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

// In tests/parallel/nvml/fake_nvml.cpp card 0 has 59 of 80 GiB free, and card 1
// has 23 GiB free.
nvml::Nvml fake() {
  return nvml::Nvml(HEADROOM_FAKE_NVML, nvml::CudaEnvironment());
}

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

TEST(PlanMachines, MemoryUsedByOtherProcessesIsNotThePlans) {
  const auto machines = machines_of(plan({"--device", "0"}), fake());
  ASSERT_TRUE(machines);
  EXPECT_EQ(machines->num_gpus(), 1);
  EXPECT_EQ(machines->gpu_memory_bytes, 59 * kGiB);
  EXPECT_EQ(machines->budget_bytes, predict::tensor_budget(59 * kGiB, 0));
  EXPECT_THAT(machines_text(*machines),
              HasSubstr("card 0: Fake H80, 80 GiB, others use 20 GiB of it"));
}

TEST(PlanMachines, TheFullestCardBoundsAll) {
  const auto machines = machines_of(plan({"--device", "0,1"}), fake());
  ASSERT_TRUE(machines);
  EXPECT_EQ(machines->num_gpus(), 2);
  EXPECT_EQ(machines->gpu_memory_bytes, 23 * kGiB);
}

TEST(PlanMachines, ACardIsAProcessAndALimit) {
  const CommandLine line = plan({"--device", "0,1", "--batch", "4"});
  const RunRequest request = make_run_request(
      with_machines(line, *machines_of(line, fake())), std::nullopt, 2);
  EXPECT_EQ(request.expected_workers(), 2);
  EXPECT_EQ(request.config.memory_limit,
            predict::tensor_budget(
                23 * kGiB, predict::nccl_bytes(
                               {1, 2, 1}, 0,
                               {.cards_of_machine = 2, .has_nvlink = true})));
  EXPECT_EQ(request.config.device, "0,1");
}

// NCCL's buffers are reserved, because tensors cannot use that memory; a layout
// with more groups of ranks has more buffers.
TEST(PlanMachines, CommunicationIsReservedByLinksAndLayout) {
  const auto reserved = [](const std::string& cluster,
                           const plan::ParallelLayout& layout) {
    return machines_of(plan({"--cluster", cluster}), fake())
        ->communication_bytes(layout, 0);
  };
  constexpr int64_t kMiB = int64_t{1} << 20;
  EXPECT_EQ(reserved("p5.48xlarge:1", {1, 8, 1}) / kMiB, 473);
  EXPECT_EQ(reserved("p5.48xlarge:8", {1, 64, 1}) / kMiB, 620);
  EXPECT_EQ(reserved("g5.48xlarge:1", {1, 8, 1}) / kMiB, 252);
  EXPECT_EQ(reserved("g5.xlarge:1", {1, 1, 1}), 0);
  EXPECT_EQ(reserved("p5.48xlarge:1", {1, 4, 2}) / kMiB, 326 + 147 + 147 + 73);
}

// If the cards are in other machines, the plan is still made for cards: it has
// no scratch memory of the CPU.
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

// Cards that LibTorch has no code for can only be planned.
TEST(PlanMachines, CardsThatCuda13DroppedCannotTrain) {
  const auto reason = [](const std::string& flag, const std::string& name) {
    return why_unusable(machines_of(plan({flag, name}), fake()));
  };
  for (const auto& [name, capability] :
       {std::pair{"p2.xlarge", "3.7"}, std::pair{"p3.2xlarge", "7.0"},
        std::pair{"Standard_NC6s_v2", "6.0"}}) {
    EXPECT_THAT(reason("--cluster", name),
                HasSubstr(std::string("has compute capability ") + capability +
                          ", and this LibTorch (CUDA 13) has code for 7.5"))
        << name;
  }
  EXPECT_THAT(reason("--gpu", "GTX1080Ti"),
              HasSubstr("NVIDIA GTX 1080 Ti has compute capability 6.1"));
  EXPECT_THAT(reason("--gpu", "Jetson Orin"), HasSubstr("ARM"));
  for (const char* name :
       {"g4dn.xlarge", "g5.xlarge", "g6.xlarge", "g6e.xlarge", "g7e.2xlarge",
        "p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"}) {
    EXPECT_EQ(reason("--cluster", name), "") << name;
  }
  EXPECT_EQ(reason("--gpu", "GTX 1650"), "");
  EXPECT_EQ(why_unusable(machines_of(plan({"--gpu-memory", "4GiB"}), fake())),
            "");
}

TEST(PlanMachines, ANameOfTwoCardsSaysWhichIsPlanned) {
  EXPECT_EQ(machines_of(plan({"--gpu", "A100"}), fake())->note,
            "A100 may be A100 40GB or A100 80GB: planned for A100 40GB");
  EXPECT_EQ(machines_of(plan({"--gpu", "A100 80GB"}), fake())->note, "");
}

// Several processes of one machine need memory for NCCL; a single process does
// not.
TEST(PlanMachines, OneProcessReservesNothingForOthers) {
  const auto budget = [](const std::vector<std::string>& flags) {
    return machines_of(plan(flags), fake())->budget_bytes;
  };
  const int64_t alone = budget({"--gpu-memory", "4GiB"});
  EXPECT_EQ(alone, predict::tensor_budget(4 * kGiB, 0));
  EXPECT_EQ(alone - budget({"--gpu-memory", "4GiB", "--processes", "2"}),
            predict::kGpuCommunicationBytes);
  EXPECT_EQ(budget({"--gpu-memory", "4GiB", "--layout", "data=2"}),
            budget({"--gpu-memory", "4GiB", "--processes", "2"}));
}

TEST(PlanMachines, CardsByTheirName) {
  const auto machines = machines_of(plan({"--gpu", "rtx 4090:2"}), fake());
  ASSERT_TRUE(machines);
  EXPECT_EQ(machines->num_gpus(), 2);
  EXPECT_EQ(machines->nodes, 1);
  EXPECT_EQ(machines->gpu_memory_bytes, int64_t{24564} << 20);
  EXPECT_THAT(machines_text(*machines),
              HasSubstr("machines     2 x NVIDIA RTX 4090, PCIe\nbudget "));
  const CommandLine line = with_machines(plan({"--batch", "4"}), *machines);
  EXPECT_EQ(make_run_request(line, std::nullopt, 2).expected_workers(), 2);
  planner::RemedyScope scope;
  bound_remedies(scope, *machines, {});
  EXPECT_EQ(scope.processes_flag + " " + scope.processes_prefix,
            "--gpu RTX-4090:");
  EXPECT_EQ(scope.processes_each, 1);
  EXPECT_EQ(scope.limit_flag, "");
  EXPECT_THAT(refusal({"--gpu", "RTX 4190"}),
              HasSubstr("there is no card 'RTX 4190' in the catalogue: the "
                        "nearest ones are RTX 4090"));
  EXPECT_EQ(refusal({"--gpu", "g5.xlarge"}),
            "[command line] --gpu: g5.xlarge is a machine, not a card: give "
            "--cluster g5.xlarge");
  EXPECT_EQ(refusal({"--cluster", "RTX 4090:2"}),
            "[command line] --cluster: RTX 4090 is a card, not a machine: give "
            "--gpu that name");
  EXPECT_EQ(refusal({"--gpu", "4090:x"}),
            "[command line] --gpu 4090:x: 'x' is no number of cards: write a "
            "whole number from 1 to 512 after the colon");
  EXPECT_EQ(refusal({"--gpu", "4090", "--gpu-memory", "8GiB"}),
            "[command line] --gpu names the GPUs, and --gpu-memory others: "
            "give one of them");
}

TEST(PlanMachines, ALayoutOfOtherProcessesIsAnsweredWithTheMachinesForIt) {
  const auto refusal_of_layout = [](const std::vector<std::string>& flags) {
    const CommandLine line = plan(flags);
    const auto machines = machines_of(line, fake());
    try {
      check_layout(*machines,
                   configs::run_config_from_flags("train", line.run_flags));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal_of_layout({"--gpu", "RTX 4090:2", "--layout", "data=4"}),
            "[plan] --layout data=4 is of 4 processes, "
            "but --gpu has 2 GPUs: use --gpu \"RTX 4090:4\", or a layout of "
            "2");
  EXPECT_THAT(
      refusal_of_layout({"--cluster", "p4d.24xlarge", "--layout", "data=9"}),
      HasSubstr("--cluster has 8 GPUs: use a layout of 8"));
  EXPECT_THAT(refusal_of_layout({"--device", "0", "--layout", "data=2"}),
              HasSubstr("name 2 cards with --device, or a layout of 1"));
  EXPECT_EQ(refusal_of_layout({"--gpu", "RTX 4090:2", "--layout", "data=2"}),
            "accepted");
}

TEST(PlanMachines, RefusesContradictions) {
  EXPECT_EQ(refusal({"--gpu-memory", "8000"}),
            "[command line] --gpu-memory 8000 has no unit: write --gpu-memory "
            "8000MiB");
  EXPECT_EQ(refusal({"--gpu-memory", "0.5"}),
            "[command line] --gpu-memory 0.5 has no unit: write --gpu-memory "
            "0.5GiB");
  EXPECT_EQ(refusal({"--gpu-memory", "8"}),
            "[command line] --gpu-memory 8 has no unit: write --gpu-memory "
            "8GiB");
  EXPECT_EQ(refusal({"--device", "0", "--gpu-memory", "8GiB"}),
            "[command line] --device 0 names this machine's GPUs, and "
            "--gpu-memory others: give one of them");
  EXPECT_EQ(refusal({"--device", "0", "--processes", "2"}),
            "[command line] --processes is given, but --device has 1 GPU and "
            "runs a process on each: leave it out");
  EXPECT_THAT(refusal({"--device", "2"}), HasSubstr("there is no card 2"));
}

}  // namespace
}  // namespace headroom::cli
