// The last rung of the memory ladder, in real processes. If no policy with less
// memory is left, the run continues from its committed step under another plan,
// with the losses of an undisturbed run and each sample used once. Or it ends
// at this step and names the flag that forbids another plan.
//
// The suites named Slow run with the label `slow`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int64_t kFailingStep = 2;

// Yolov5n in float64 with batches of 8 and one thread per process. The images
// are larger than in other tests, so that the peak is in a step and not at the
// start.
std::vector<std::string> command_of(const std::vector<std::string>& more) {
  std::vector<std::string> words = train_fp64("8");
  *(std::ranges::find(words, "--img") + 1) = "160";
  return joined(words, more);
}

fs::path run_directory(const fs::path& folder) {
  return folder / "runs/train/exp";
}

const std::vector<Json>& undisturbed() {
  static const std::vector<Json> steps =
      train_in(fresh_folder() / "undisturbed", command_of({}),
               {"--processes", "2", "--max-steps", "5"});
  return steps;
}

// Returns `rungs` faults, each of which makes one attempt of the failing step
// run out of memory.
std::string every_rung_fails(int rank, int rungs) {
  std::string faults;
  for (int failure = 0; failure < rungs; ++failure) {
    faults += (failure == 0 ? "" : ";") + std::string("oom@rank=") +
              std::to_string(rank) + ",step=" + std::to_string(kFailingStep) +
              ",allocation=" + std::to_string(60 + 40 * failure);
  }
  return faults;
}

std::vector<Json> events_named(const fs::path& folder,
                               const std::string& name) {
  std::vector<Json> events = read_lines(run_directory(folder) / "events.jsonl");
  std::erase_if(events,
                [&](const Json& event) { return event.at("event") != name; });
  return events;
}

TEST(Replan, ARunGoesOnUnderAnotherPlanAndResumesUnderIt) {
  const fs::path folder = fresh_folder();
  const std::vector<Json> steps =
      train_in(folder, command_of({}),
               {"--processes", "2", "--max-steps", "4", "--inject",
                every_rung_fails(1, 5)});
  EXPECT_EQ(steps.size(), 4u);
  const Json plan = read_json(run_directory(folder) / "plan.json");
  const ProgramResult resumed =
      run_program({program("headroom"), "train", "--resume",
                   run_directory(folder).string(), "--max-steps", "5"},
                  folder);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  std::vector<Json> all = read_lines(run_directory(folder) / "steps.jsonl");
  ASSERT_EQ(all.size(), 5u);
  const Json again = read_json(run_directory(folder) / "plan.json");
  for (const char* key : {"layout", "zero_stage", "micro_batch_size",
                          "activation_policies", "reason"}) {
    EXPECT_EQ(plan.at(key), again.at(key)) << key;
  }
  // The generations are the first one, one for each retry with activations that
  // need less memory, and one under another plan; the resumed run counts its
  // generations from 1 again.
  const std::vector<Json> generations = events_named(folder, "generation");
  ASSERT_EQ(generations.size(), 8u);
  const std::string why = generations[6].at("reason");
  EXPECT_THAT(why,
              HasSubstr("generation 7: step 2, rank 1: out of memory with the "
                        "leanest activations"));
  const std::string reason = plan.at("reason");
  EXPECT_THAT(reason, HasSubstr("instead of data=2"));
  for (const size_t step : {2, 3}) EXPECT_EQ(all[step].at("generation"), 7);
  EXPECT_EQ(all[4].at("generation"), 1);
  expect_equivalent(undisturbed(), all);
}

// The realistic case: the other process keeps the memory that it took.
TEST(Slow, ALastingBallastLeadsToAPlanThatFitsBesideIt) {
  const std::vector<Json>& calm = undisturbed();
  const int64_t peak = measured_peaks(calm).at(1);
  const int64_t limit = 2 * peak;
  const int64_t room = peak * 2 / 3;
  const fs::path folder = fresh_folder();
  const std::vector<Json> steps =
      train_in(folder, command_of({}),
               {"--processes", "2", "--max-steps", "5", "--memory-limit",
                std::to_string(limit), "--inject",
                "ballast@rank=1,step=2,bytes=" + std::to_string(limit - room)});
  expect_equivalent(calm, steps);
  // Only the last generation has another plan; the earlier ones used rungs of
  // the ladder.
  const std::vector<Json> generations = events_named(folder, "generation");
  ASSERT_GE(generations.size(), 2u);
  for (size_t step = 0; step < steps.size(); ++step) {
    EXPECT_EQ(steps[step].at("step"), step);
    EXPECT_EQ(steps[step].at("generation"),
              step < kFailingStep ? 1 : generations.size());
    EXPECT_EQ(steps[step].at("attempt"), 1) << "it really fits";
  }
  for (const int64_t bytes : measured_peaks(steps)) EXPECT_LE(bytes, limit);

  const std::string why = generations.back().at("reason");
  EXPECT_THAT(why, HasSubstr("step 2, rank 1: out of memory with the leanest "
                             "activations: asked for"));
  const std::vector<Json> plans = events_named(folder, "plan");
  ASSERT_EQ(plans.size(), generations.size());
  const std::string reason = plans.back().at("reason");
  EXPECT_THAT(reason, HasSubstr("instead of data=2"));
  std::printf("%s\n", reason.c_str());
  for (const Json& bytes : plans.back().at("plan").at("predicted_peak_bytes")) {
    EXPECT_LE(bytes, room);
  }
  const Json summary = read_json(run_directory(folder) / "summary.json");
  EXPECT_EQ(summary.at("steps"), 5);
  EXPECT_EQ(summary.at("generations"), generations.size());
}

TEST(Replan, AGivenFlagThatForbidsAnotherPlanIsNamed) {
  const fs::path folder = fresh_folder();
  const ProgramResult result =
      run_program(command_of({"--layout", "pipeline=2", "--max-steps", "5",
                              "--inject", every_rung_fails(1, 6)}),
                  folder);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  const auto steps = read_lines(run_directory(folder) / "steps.jsonl");
  EXPECT_EQ(steps.size(), static_cast<size_t>(kFailingStep));
  const std::vector<Json> over = events_named(folder, "run_over");
  ASSERT_EQ(over.size(), 1u);
  const std::string reason = over[0].at("reason");
  std::printf("%s\n", reason.c_str());
  for (const char* part :
       {"step 2, rank 1: out of memory with the leanest activations",
        "--layout pipeline=2 forbids another plan",
        "the state after 2 steps is saved, continue with: headroom train "
        "--resume",
        "--layout data="}) {
    EXPECT_THAT(reason, HasSubstr(part)) << part << ": " << reason;
  }
  EXPECT_EQ(reason.find('\n'), std::string::npos);
  EXPECT_THAT(result.err, HasSubstr(reason));
  EXPECT_TRUE(fs::exists(run_directory(folder) / "checkpoints/step-2" /
                         "MANIFEST.json"));
}

// Memory runs out at a point where no step can be retried. The peer does not
// wait for the rank until the time limit of an operation, but saves the
// committed state.
TEST(Slow, ARankOutOfMemoryOutsideAStepEndsTheRunForAllRanks) {
  constexpr double kOperationTimeout = 120;  // from generation_loop.cpp
  const std::vector<Json>& calm = undisturbed();
  const int64_t limit = 2 * measured_peaks(calm).at(1);
  const int64_t live = calm.back().at("memory").at(1).at("live_bytes");
  const fs::path folder = fresh_folder();
  std::vector<std::string> command =
      command_of({"--processes", "2", "--max-steps", "10", "--memory-limit",
                  std::to_string(limit), "--inject",
                  "ballast@rank=1,step=5,phase=validation,bytes=" +
                      std::to_string(limit - live - (1 << 18))});
  std::erase(command, "--noval");
  const ProgramResult result = run_program(command, folder);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_LT(result.seconds, kOperationTimeout / 2);
  EXPECT_EQ(read_lines(run_directory(folder) / "steps.jsonl").size(), 5u);
  const std::vector<Json> over = events_named(folder, "run_over");
  ASSERT_EQ(over.size(), 1u);
  const std::string reason = over[0].at("reason");
  std::printf("%s\n", reason.c_str());
  EXPECT_EQ(reason.find("rank 1 "), 0u) << reason;
  EXPECT_THAT(reason, HasSubstr("memory limit"));
  EXPECT_THAT(reason,
              HasSubstr("the state after 5 steps is saved, continue with: "
                        "headroom train --resume"));
  EXPECT_EQ(reason.find('\n'), std::string::npos);
  EXPECT_TRUE(fs::exists(run_directory(folder) / "checkpoints/step-5" /
                         "MANIFEST.json"))
      << result.err;
}

}  // namespace
}  // namespace headroom::testing
