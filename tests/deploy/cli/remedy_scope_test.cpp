#include "deploy/cli/remedy_scope.h"

#include <gtest/gtest.h>

#include "deploy/cli/args/command_line.h"

namespace headroom::cli {
namespace {

std::string changed(const std::vector<std::string>& words,
                    const std::vector<configs::FlagUse>& flags) {
  planner::Remedy remedy;
  remedy.flags = flags;
  return command_with(parse_command_line(words), remedy);
}

TEST(RemedyScope, AFlagIsChangedInItsPlaceWhicheverItsSpelling) {
  EXPECT_EQ(changed({"train", "--imgsz", "640", "480", "--batch-size=8"},
                    {{"--img", {"320"}}, {"--batch", {"4"}}}),
            "headroom train --img 320 --batch 4");
}

TEST(RemedyScope, AMissingFlagIsAppended) {
  EXPECT_EQ(changed({"plan", "--cfg", "yolov5s", "--json"},
                    {{"--activations", {"offload"}}}),
            "headroom plan --cfg yolov5s --json --activations offload");
}

TEST(RemedyScope, WordsAreQuotedForAShell) {
  EXPECT_EQ(changed({"train", "--data", "my data/it's.yaml"},
                    {{"--processes", {"2"}}}),
            "headroom train --data 'my data/it'\\''s.yaml' --processes 2");
}

TEST(RemedyScope, SyncBnIsLeftOut) {
  planner::Remedy remedy;
  remedy.flags = {{"--bn-group", {"4"}}};
  remedy.drops_sync_bn = true;
  EXPECT_EQ(
      command_with(parse_command_line({"plan", "--sync-bn", "--json"}), remedy),
      "headroom plan --json --bn-group 4");
}

// The command repeats all flags of the plan, since a flag that is left out
// would get its default value.
TEST(RemedyScope, AResumedRunIsGivenItsWholePlan) {
  planner::Remedy remedy;
  remedy.config.resume = "/runs/exp";
  remedy.config.processes = 2;
  remedy.config.zero_stage = 1;
  remedy.flags = {{"--zero", {"1"}}};
  EXPECT_EQ(command_with(parse_command_line({"train", "--resume", "/runs/exp"}),
                         remedy),
            "headroom train --resume /runs/exp --processes 2 --zero 1");
}

TEST(RemedyScope, ProcessesOnTheProcessorShareTheMachinesCores) {
  const CommandLine line = parse_command_line({"train"});
  configs::RunConfig config;
  config.device = "cpu";
  const auto scope = remedy_scope(line, config, /*has_launcher=*/false,
                                  /*num_agents=*/1, /*cores=*/6);
  EXPECT_EQ(scope.cores, 6);
  EXPECT_EQ(scope.threads_of(2), 3);
  EXPECT_EQ(scope.threads_of(8), 1);
  EXPECT_EQ(remedy_scope(line, config, true, 2, 6).cores, 0)
      << "the agents may be on other machines";
  config.threads = 4;  // as given
  const auto given = remedy_scope(line, config, false, 1, 6);
  EXPECT_EQ(given.cores, 6);
  EXPECT_EQ(given.threads_of, nullptr);
  config.device = "0";
  EXPECT_EQ(remedy_scope(line, config, false, 1, 6).cores, 0);
}

}  // namespace
}  // namespace headroom::cli
