// Any process may be killed at any moment: the run goes on by itself, at most
// one committed step is done again, every sample is used once, and the losses
// are those of an undisturbed run, to the bit where the layout came back.
//
// Prints a line for each kill: detection and the next committed step after it,
// both seen from outside the program.
//
// The suites named Slow run with the label `slow`.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kSteps = 8;  // 37 images in batches of 8: an epoch is 5 steps

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

fs::path run_directory(const fs::path& folder) {
  return folder / "runs/train/exp";
}

std::vector<Json> events_named(const fs::path& folder,
                               const std::string& name) {
  std::vector<Json> events = read_lines(run_directory(folder) / "events.jsonl");
  std::erase_if(events,
                [&](const Json& event) { return event.at("event") != name; });
  return events;
}

struct Kill {
  std::string name;
  std::vector<std::string> layout;
  std::string faults;
  int first_step = 4;  // from which on the run goes on, or the one before it
};

void PrintTo(const Kill& kill, std::ostream* out) { *out << kill.name; }

std::vector<std::string> command_of(const Kill& kill) {
  std::vector<std::string> words = train_fp64("8");
  words.insert(words.end(), {"--max-steps", std::to_string(kSteps)});
  words.insert(words.end(), kill.layout.begin(), kill.layout.end());
  return words;
}

const std::vector<Json>& undisturbed(const Kill& kill) {
  static std::map<std::vector<std::string>, std::vector<Json>> runs;
  auto& steps = runs[kill.layout];
  if (steps.empty()) {
    std::string name;
    for (const std::string& word : kill.layout) name += word;
    steps =
        train_in(fresh_folder() / ("undisturbed" + name), command_of(kill), {});
  }
  return steps;
}

// Until one of the workers that were there is not any more.
Clock::time_point wait_for_a_death(pid_t supervisor) {
  std::vector<pid_t> workers;
  for (int i = 0; i < 60'000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const std::vector<pid_t> now = descendants(supervisor, "headroom-worker");
    for (const pid_t pid : workers) {
      if (std::find(now.begin(), now.end(), pid) == now.end()) {
        return Clock::now();
      }
    }
    workers = now;
  }
  ADD_FAILURE() << "nobody died";
  return Clock::now();
}

class KillMatrix : public ::testing::TestWithParam<Kill> {};

TEST_P(KillMatrix, CostsAtMostOneStep) {
  const Kill& kill = GetParam();
  const std::vector<Json>& expected = undisturbed(kill);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
  const fs::path folder = fresh_folder();
  std::vector<std::string> words = command_of(kill);
  words.insert(words.end(), {"--inject", kill.faults});
  Program run(words, folder);
  const Clock::time_point killed = wait_for_a_death(run.pid());
  while (events_named(folder, "loss_of_process").empty() &&
         seconds_since(killed) < 30) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const double detection = seconds_since(killed);
  const auto generation_two = [&] {
    const std::vector<Json> steps =
        read_lines(run_directory(folder) / "steps.jsonl");
    return !steps.empty() && steps.back().at("generation") > 1;
  };
  while (!generation_two() && seconds_since(killed) < 60) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const double next_step = seconds_since(killed);
  const ProgramResult result = run.join();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LT(detection, 2) << result.err;
  EXPECT_LT(next_step, 10) << result.err;

  const std::vector<Json> steps =
      read_lines(run_directory(folder) / "steps.jsonl");
  ASSERT_EQ(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("step"), i);
    EXPECT_EQ(steps[i].at("samples"), expected[i].at("samples"));
    EXPECT_EQ(steps[i].at("loss"), expected[i].at("loss")) << "step " << i;
    EXPECT_EQ(steps[i].at("grad_norm"), expected[i].at("grad_norm"));
  }
  const std::vector<Json> resumed = events_named(folder, "resume");
  ASSERT_FALSE(resumed.empty()) << result.err;
  const int from = resumed.front().at("step").get<int>();
  EXPECT_GE(from, kill.first_step - 1) << result.err;
  EXPECT_EQ(resumed.front().at("reason").get<std::string>().substr(0, 10),
            "goes on af");
  std::printf("%-34s detected %.3f s, next step %.2f s, goes on after %d\n",
              kill.name.c_str(), detection, next_step, from);
}

std::string kill_at(int rank, int step, const std::string& phase) {
  return "kill@rank=" + std::to_string(rank) + ",step=" + std::to_string(step) +
         ",phase=" + phase;
}

struct Victim {
  std::string name;
  std::vector<std::string> layout;
  int rank;
};

std::vector<Victim> victims() {
  return {{"rank_0", {"--processes", "2"}, 0},
          {"rank_1", {"--processes", "2"}, 1},
          {"zero_3_rank_1", {"--layout", "data=2", "--zero", "3"}, 1},
          {"zero_1_rank_0", {"--layout", "data=2", "--zero", "1"}, 0},
          {"first_stage", {"--layout", "pipeline=2"}, 0},
          {"last_stage", {"--layout", "pipeline=2"}, 1},
          {"spatial_rank", {"--layout", "spatial=2"}, 1}};
}

// All that can be struck at: steps, then what comes after the first epoch.
std::vector<Kill> all_kills() {
  std::vector<Kill> kills;
  for (const Victim& victim : victims()) {
    for (const char* phase : {"forward", "backward", "vote", "commit",
                              "checkpoint", "validation"}) {
      const bool is_after = phase == std::string("checkpoint") ||
                            phase == std::string("validation");
      const int step = is_after ? 5 : 4;
      kills.push_back({victim.name + "_" + phase, victim.layout,
                       kill_at(victim.rank, step, phase), step});
    }
  }
  // Two deaths: the second while the generation after the first is formed.
  kills.push_back({"rank_2_between",
                   {"--processes", "3"},
                   kill_at(1, 4, "forward") + ";" + kill_at(2, 4, "between"),
                   4});
  return kills;
}

std::string name_of_kill(const ::testing::TestParamInfo<Kill>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Slow, KillMatrix, ::testing::ValuesIn(all_kills()),
                         name_of_kill);

INSTANTIATE_TEST_SUITE_P(
    Quick, KillMatrix,
    ::testing::Values(
        Kill{"rank_0_vote", {"--processes", "2"}, kill_at(0, 4, "vote"), 4},
        Kill{"zero_3_rank_1_commit",
             {"--layout", "data=2", "--zero", "3"},
             kill_at(1, 4, "commit"),
             4},
        Kill{"last_stage_backward",
             {"--layout", "pipeline=2"},
             kill_at(1, 4, "backward"),
             4}),
    name_of_kill);

}  // namespace
}  // namespace headroom::testing
