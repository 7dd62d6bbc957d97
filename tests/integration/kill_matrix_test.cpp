// Any process may be killed at any moment. The run continues by itself, at most
// one committed step is done again, and every sample is used once. The losses
// equal those of an undisturbed run: bit for bit if the layout is restored,
// else within rounding.
//
//   a worker       kills itself in the middle of the phase (--inject kill@…)
//   others         are killed from outside while a rank waits in the middle of
//                  the phase (--inject pause@…); the supervisor restarts the
//                  coordinator and the agent of slot 0, but not the agent of
//                  slot 1
//
// Prints for each kill the time until it was detected and the time until the
// next committed step, both measured from outside the program; at the end, all
// of them are printed as a table.
//
// The suites named Slow run with the label `slow`.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/disturbed_run.h"
#include "tests/integration/kill_cells.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

// The cost of each kill, printed as a table at the end of the program.
class CostTable : public ::testing::Environment {
 public:
  struct Row {
    std::string kill;
    double detection, next_step;
  };
  static std::vector<Row>& rows() {
    static std::vector<Row> all;
    return all;
  }
  void TearDown() override {
    if (rows().empty()) return;
    std::printf("\n%-28s %12s %12s\n", "killed", "detected, s", "next step, s");
    Row worst = {"worst", 0, 0};
    for (const Row& row : rows()) {
      print(row);
      worst.detection = std::max(worst.detection, row.detection);
      worst.next_step = std::max(worst.next_step, row.next_step);
    }
    print(worst);
  }

 private:
  static void print(const Row& row) {
    std::printf("%-28s %12.3f %12.2f\n", row.kill.c_str(), row.detection,
                row.next_step);
  }
};

const auto* const cost_table =
    ::testing::AddGlobalTestEnvironment(new CostTable);

class KillMatrix : public ::testing::TestWithParam<Kill> {
 protected:
  void start() {
    std::vector<std::string> words = command_of(GetParam());
    words.insert(words.end(), {"--inject", GetParam().faults});
    folder_ = fresh_folder();
    if (!GetParam().has_two_agents()) {
      run_.emplace(words, folder_);
      return;
    }
    const std::string job = GetParam().name + std::to_string(getpid());
    fs::create_directories(folder_ / "second");
    run_.emplace(in_slot(0, 2, job, words), folder_);
    second_.emplace(in_slot(1, 2, job, words), folder_ / "second");
  }

  std::string said() const {
    return text_of(folder_ / "stderr.txt") +
           text_of(folder_ / "second" / "stderr.txt");
  }

  // Waits until one of the first workers has ended.
  bool wait_for_a_death() const {
    std::vector<pid_t> workers;
    return wait_until(
        [&] {
          const std::vector<pid_t> now = workers_of(run_->pid());
          for (const pid_t pid : workers) {
            if (std::find(now.begin(), now.end(), pid) == now.end()) {
              return true;
            }
          }
          workers = now;
          return false;
        },
        60);
  }

  std::vector<pid_t> victims(const std::vector<pid_t>& first_workers) const {
    switch (GetParam().victim) {
      case Victim::kCoordinator:
        return coordinators_of(run_->pid());
      case Victim::kAgent:
      case Victim::kOnlyAgent:
        return agents_of(run_->pid());
      case Victim::kLostAgent:
        return {second_->pid()};
      default: {
        std::vector<pid_t> workers = workers_of(run_->pid());
        std::erase_if(workers, [&](pid_t pid) {
          return std::count(first_workers.begin(), first_workers.end(), pid) >
                 0;
        });
        return workers;
      }
    }
  }

  // Kills the process, or waits until it has killed itself; returns the time of
  // the kill.
  Clock::time_point strike() {
    if (GetParam().victim == Victim::kNobody) {
      EXPECT_TRUE(wait_for_a_death()) << said();
      return Clock::now();
    }
    EXPECT_TRUE(
        wait_until([&] { return steps_so_far(folder_).size() >= 2; }, 60))
        << said();
    const std::vector<pid_t> first_workers = workers_of(run_->pid());
    EXPECT_TRUE(wait_until(
        [&] { return said().find("--inject pause@") != std::string::npos; },
        60))
        << said();
    const std::vector<pid_t> found = victims(first_workers);
    EXPECT_EQ(found.size(), 1u) << said();
    losses_before_ = events_named(folder_, "loss_of_process").size();
    const Clock::time_point now = Clock::now();
    for (const pid_t pid : found) ::kill(pid, SIGKILL);
    return now;
  }

  bool is_detected() const {
    if (GetParam().victim == Victim::kCoordinator) {
      return said().find("the coordinator was killed") != std::string::npos;
    }
    // After a kill of the only agent, its workers may take some time to end.
    if (GetParam().victim == Victim::kOnlyAgent) {
      return said().find("the agent was killed") != std::string::npos;
    }
    return events_named(folder_, "loss_of_process").size() > losses_before_;
  }

  fs::path folder_;
  std::optional<Program> run_;
  std::optional<Program> second_;  // the agent of slot 1
  size_t losses_before_ = 0;
};

// For a run whose layout was not restored. The losses of the first generation
// are equal. The loss of the next step differs by less than 1e-9, and those of
// later steps by less than 1e-6.
void expect_steps_within_rounding(const std::vector<Json>& steps,
                                  const std::vector<Json>& expected) {
  ASSERT_EQ(steps.size(), expected.size());
  bool is_first = true;
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("step"), i);
    EXPECT_EQ(steps[i].at("samples"), expected[i].at("samples"));
    if (steps[i].at("generation") == 1) {
      EXPECT_EQ(steps[i].at("loss"), expected[i].at("loss")) << i;
      continue;
    }
    EXPECT_LT(relative(steps[i], expected[i], "loss"), is_first ? 1e-9 : 1e-6)
        << i;
    is_first = false;
  }
  EXPECT_FALSE(is_first) << "nobody else took part";
}

TEST_P(KillMatrix, CostsAtMostOneStep) {
  const Kill& kill = GetParam();
  const bool is_coordinator = kill.victim == Victim::kCoordinator;
  const std::vector<Json>& expected = undisturbed(kill);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kKillSteps));
  start();
  const Clock::time_point killed = strike();
  const size_t steps_before = steps_so_far(folder_).size();
  EXPECT_TRUE(wait_until([&] { return is_detected(); }, 30)) << said();
  const double detection = seconds_since(killed);
  EXPECT_TRUE(wait_until(
      [&] {
        const std::vector<Json> steps = steps_so_far(folder_);
        if (is_coordinator) return steps.size() > steps_before;
        return !steps.empty() && steps.back().at("generation") > 1;
      },
      60));
  const double next_step = seconds_since(killed);
  const ProgramResult result = run_->join();
  ASSERT_EQ(result.exit_code, 0) << said();
  if (second_) {
    const bool is_killed = kill.victim == Victim::kLostAgent;
    EXPECT_EQ(second_->join().exit_code, is_killed ? 128 + SIGKILL : 0);
  }
  EXPECT_LT(detection, 2) << said();
  EXPECT_LT(next_step, 10) << said();

  const std::vector<Json> steps = steps_so_far(folder_);
  if (kill.victim == Victim::kLostAgent) {
    expect_steps_within_rounding(steps, expected);
  } else {
    expect_same_steps(steps, expected);
  }
  expect_exact_ledger(folder_);
  const std::vector<Json> resumed = events_named(folder_, "resume");
  for (const Json& event : resumed) {
    EXPECT_GE(event.at("step").get<int>(), kill.first_step - 1) << said();
    EXPECT_EQ(event.at("reason").get<std::string>().substr(0, 10),
              kill.victim == Victim::kOnlyAgent ? "resumed fr" : "goes on af");
  }
  EXPECT_EQ(events_named(folder_, "coordinator_restart").size(),
            is_coordinator ? 1u : 0u);
  EXPECT_EQ(events_named(folder_, "agent_joins").size(),
            kill.victim == Victim::kAgent || kill.victim == Victim::kOnlyAgent
                ? 1u
                : 0u);
  // A rank that is out of memory ends the generation, but all states stay in
  // memory.
  EXPECT_EQ(resumed.empty(),
            steps.back().at("generation") == 1 ||
                !events_named(folder_, "out_of_memory").empty());
  for (const Json& event : events_named(folder_, "memory_prediction")) {
    ADD_FAILURE() << event;
  }
  std::printf("%-28s detected %.3f s, next step %.2f s\n", kill.name.c_str(),
              detection, next_step);
  CostTable::rows().push_back({kill.name, detection, next_step});
}

// Kills rank 0 in the given phase after `step` steps: before it has written the
// checkpoint that is due, or before it has reported the end of the run.
void kill_rank_0(const fs::path& folder, int step, const std::string& phase,
                 const std::vector<std::string>& layout) {
  Kill kill;
  kill.layout = layout;
  const fs::path calm = folder / "calm";
  const std::vector<Json> expected = train_in(calm, command_of(kill), {});
  const std::vector<Json> steps =
      train_in(folder / "killed", command_of(kill),
               {"--inject", fault_at("kill", 0, step, phase)});
  expect_same_steps(steps, expected);
  EXPECT_EQ(events_named(folder / "killed", "generation").size(), 2u);
  const std::string name = "step-" + std::to_string(step);
  const fs::path checkpoint = fs::path("checkpoints") / name;
  int files = 0;
  for (const auto& file :
       fs::directory_iterator(run_directory(calm) / checkpoint)) {
    ++files;
    const fs::path path = checkpoint / file.path().filename();
    EXPECT_TRUE(text_of(file.path()) ==
                text_of(run_directory(folder / "killed") / path))
        << path;
  }
  EXPECT_GE(files, 2);
}

TEST(KillOfRank0, BeforeACheckpointTheNextGenerationWritesIt) {
  kill_rank_0(fresh_folder(), 5, "checkpoint", {"--processes", "2"});
}

TEST(KillOfRank0, BeforeTheLastCheckpointTheNextGenerationEndsTheRun) {
  kill_rank_0(fresh_folder(), kKillSteps, "checkpoint",
              {"--layout", "data=2", "--zero", "3"});
}

TEST(KillOfRank0, BeforeItReportsTheEndTheNextGenerationEndsTheRun) {
  kill_rank_0(fresh_folder(), kKillSteps, "end", {"--processes", "2"});
}

INSTANTIATE_TEST_SUITE_P(Slow, KillMatrix, ::testing::ValuesIn(all_kills()),
                         name_of_kill);

INSTANTIATE_TEST_SUITE_P(
    Quick, KillMatrix,
    ::testing::Values(
        kill_of_worker("rank_0", {"--processes", "2"}, 0, "vote"),
        kill_of_worker("zero_3_rank_1", {"--layout", "data=2", "--zero", "3"},
                       1, "commit"),
        kill_of_worker("last_stage", {"--layout", "pipeline=2"}, 1, "backward"),
        kill_of_other("coordinator", Victim::kCoordinator, 0, "commit"),
        kill_of_other("agent_0", Victim::kAgent, 0, "forward"),
        kill_of_other("only_agent", Victim::kOnlyAgent, 0, "forward")),
    name_of_kill);

}  // namespace
}  // namespace headroom::testing
