#include "deploy/cli/plan/plan_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "configs/cluster_catalogue.h"
#include "parallel/base/units.h"
#include "parallel/plan/layout.h"

namespace headroom::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// The train command that the answer to `plan` with `flags` suggests.
std::string trains(const std::string& flags, bool knows_data = true,
                   const std::optional<PlanMachines>& machines = {}) {
  return train_command(parse_command_line(words_of("plan " + flags)), machines,
                       knows_data);
}

PlanMachines rented(int64_t nodes) {
  PlanMachines machines;
  machines.flag = "--cluster";
  machines.instance = configs::Instance{};
  machines.instance->gpu = "NVIDIA A100 40GB";
  machines.instance->gpus = 8;
  machines.instance->compute_capability = 80;
  machines.nodes = nodes;
  machines.gpu_memory_bytes = int64_t{40} << 30;
  return machines;
}

TEST(TrainCommand, LeavesOutFlagsThatOnlyPlanHas) {
  EXPECT_EQ(trains("--gpu-memory 8GiB --data d.yaml --batch -1 --details"),
            "headroom train --data d.yaml --batch -1");
  EXPECT_EQ(
      trains("--gpu-memory=8GiB --data d.yaml --show schedule --img 640 320"),
      "headroom train --data d.yaml --img 640 320");
  EXPECT_EQ(trains("--write ask --synthetic-input --micro-batch 4"),
            "headroom train --synthetic-input --micro-batch 4");
}

TEST(Labelled, BreaksBetweenWordsWhereThereAreColumns) {
  EXPECT_EQ(labelled("plan", "as asked: 16 images", 0),
            "plan         as asked: 16 images\n");
  EXPECT_EQ(labelled("plan", "as asked: 16 images", 25),
            "plan         as asked: 16\n"
            "             images\n");
  EXPECT_EQ(labelled("plan", "unbreakable", 5), "plan         unbreakable\n");
}

TEST(TrainCommand, NamesTheFlagsThatAreStillMissing) {
  EXPECT_EQ(trains("--cfg yolov5s", /*knows_data=*/false),
            "headroom train --data DATA.YAML --cfg yolov5s");
}

TEST(TrainCommand, StartsAProcessOnEveryCard) {
  EXPECT_EQ(trains("--gpu x:8 --data d.yaml", true, rented(1)),
            "headroom train --data d.yaml --processes 8");
  EXPECT_EQ(trains("--cluster x:2 --data d.yaml", true, rented(2)),
            "mpirun -np 2 --map-by node headroom train --data d.yaml "
            "--processes 8");
}

TEST(TrainCommand, IsOneThatTrainTakes) {
  for (const char* flags :
       {"--gpu-memory 8GiB --cfg yolov5s --img 640", "--show schedule --zero 1",
        "--json --weights w.pt --memory-limit=2GiB",
        "--device 0,1 --details"}) {
    std::vector<std::string> words = words_of(trains(flags));
    words.erase(words.begin());
    EXPECT_NO_THROW(parse_command_line(words)) << flags;
  }
}

configs::RunConfig config_of(int64_t limit) {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.precision = configs::Precision::kFp32;
  config.memory_limit = limit;
  return config;
}

TEST(PlanAnswer, BeginsWithTheVerdictAndTheCommand) {
  const PlanReport report =
      make_plan_report(config_of(int64_t{4} << 30), 1, false);
  const std::string text = plan_answer_text(report, {}, "headroom train");
  EXPECT_THAT(text,
              StartsWith("fits: 1.86 of 4 GiB, 2.14 GiB to spare\n"
                         "train it     headroom train\n\n"
                         "peaks        training 1.85 GiB, of which below; "
                         "validation "));
  EXPECT_THAT(text,
              ContainsRegex("kept for the backward pass +1.55 GiB +#{16}\n"));
  EXPECT_THAT(text, ContainsRegex("free +2.15 GiB +\\.{22}\n"));
  EXPECT_THAT(text, HasSubstr("\nplan         chosen: "));
}

TEST(PlanAnswer, ReportsTheFullestProcess) {
  configs::RunConfig config = config_of(int64_t{2} << 30);
  config.layout = plan::parse_layout("pipeline=2");
  config.batch_norm_group_size = 4;
  EXPECT_THAT(
      plan_answer_text(make_plan_report(config, 2, false), rented(1), ""),
      AllOf(StartsWith("fits: "),
            HasSubstr(" to spare in the fullest of 2 processes (NVIDIA A100 "
                      "40GB, 40 GiB)\n")));
}

// If a plan fits, the printed bytes that it needs and the printed limit are
// never the same text.
TEST(PlanAnswer, NumbersOfAPlanThatFitsDiffer) {
  PlanReport report = make_plan_report(config_of(int64_t{4} << 30), 1, false);
  report.config.memory_limit = int64_t{2} << 30;
  const auto verdict = [&](int64_t needed) {
    report.plan.predicted_peak_bytes = {needed};
    return plan_verdict(report, {});
  };
  constexpr int64_t kMiB = int64_t{1} << 20;
  EXPECT_EQ(verdict(1054 * kMiB), "fits: 1.03 of 2 GiB, 0.97 GiB to spare");
  EXPECT_EQ(verdict(2045 * kMiB),
            "fits: 1.998 of 2 GiB, 3 MiB to spare, as a plan keeps what fits");
  report.config.memory_limit = 500 * kMiB;
  EXPECT_EQ(verdict(100 * kMiB), "fits: 100 of 500 MiB, 400 MiB to spare");
}

// The page shows the largest of all phases, and so does the terminal.
TEST(PlanAnswer, APeakInAValidationIsThePlans) {
  PlanReport report = make_plan_report(config_of(int64_t{4} << 30), 1, false);
  report.plan.predicted_peak_bytes = {int64_t{3} << 30};
  report.plan.predicted_phase_bytes[0].validation = int64_t{3} << 30;
  EXPECT_THAT(plan_answer_text(report, {}, ""),
              AllOf(StartsWith("fits: 3 of 4 GiB, 1 GiB to spare"),
                    HasSubstr("; validation 3 GiB\n")));
}

TEST(PlanAnswer, CardsThatCannotTrainAreAnsweredWithThatFirst) {
  PlanMachines old = rented(1);
  old.instance->gpu = "NVIDIA K80";
  old.instance->compute_capability = 37;
  EXPECT_THAT(
      plan_answer_text(make_plan_report(config_of(int64_t{4} << 30), 1, false),
                       old, "headroom train"),
      AllOf(StartsWith("cannot train: NVIDIA K80 has compute capability 3.7, "
                       "and this LibTorch (CUDA 13) has code for 7.5 and up\n"
                       "memory       1.86 of 4 GiB in the process; take a "
                       "card of compute capability 7.5 or above"),
            Not(HasSubstr("fits")), Not(HasSubstr("train it"))));
}

TEST(PlanAnswer, WithoutALimitNamesTheFlagForOne) {
  EXPECT_THAT(
      plan_answer_text(make_plan_report(config_of(0), 1, false), {}, ""),
      AllOf(StartsWith("needs 1.85 GiB in the process; no --memory-limit"),
            Not(HasSubstr("free "))));
}

TEST(PlanAnswer, ReportsTheCostOfGroupsThatSpanRanks) {
  configs::RunConfig config = config_of(0);
  config.global_batch_size = 4096;
  config.layout = plan::parse_layout("data=512");
  EXPECT_THAT(
      plan_answer_text(make_plan_report(config, 512, false), {}, ""),
      ContainsRegex("statistics   batch-norm groups span ranks: 114 exchanges "
                    "of statistics a step, predicted at [0-9]+ % of its time"));
}

// The answer has one short explanation for each term that it uses.
TEST(PlanAnswer, ExplainsItsTerms) {
  const std::string plain =
      plan_answer_text(make_plan_report(config_of(0), 1, false), {}, "");
  EXPECT_THAT(plain,
              AllOf(HasSubstr("micro-batch: images that go through at once"),
                    Not(HasSubstr("offload:"))));
  const std::string tight = plan_answer_text(
      make_plan_report(config_of(int64_t{150} << 20), 1, false), {}, "");
  EXPECT_THAT(tight, HasSubstr("offload: what backward needs"));
}

}  // namespace
}  // namespace headroom::cli
