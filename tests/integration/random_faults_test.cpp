// Processes are killed, hung and restarted at random moments, one after another
// in one run. The run completes, every sample is used once, and losses and
// weights are those of an undisturbed run bit for bit.
//
// There are two agents with one worker each, and the run never has fewer than
// two processes, so that the layout is restored each time. The faults depend on
// a seed, but their exact moments do not.
//
// The suite named Slow runs with the label `slow`.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "proto/channel_security.h"
#include "tests/integration/disturbed_run.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> command(int steps) {
  std::vector<std::string> words = train_fp64("4");  // 10 steps an epoch
  const auto size = std::find(words.begin(), words.end(), "--img");
  *std::next(size) = "64";
  const auto epochs = std::find(words.begin(), words.end(), "--epochs");
  *std::next(epochs) = "100";
  words.insert(words.end(), {"--max-steps", std::to_string(steps)});
  return words;
}

class RandomFaults : public ::testing::Test {
 protected:
  void run(int steps, int faults, uint64_t seed) {
    random_.seed(seed);
    run(steps, [&] {
      // Steps continue without a coordinator, so half of the steps are left for
      // the time after the faults.
      for (int fault = 0; fault < faults && !HasFatalFailure(); ++fault) {
        strike(static_cast<size_t>(fault * (steps / 2) / faults + 2));
      }
    });
  }

  // `disturb` is called once the first step is committed.
  void run(int steps, const std::function<void()>& disturb) {
    const fs::path calm = fresh_folder() / "undisturbed";
    const std::vector<Json> expected =
        train_in(calm, command(steps), {"--processes", "2"});
    ASSERT_EQ(expected.size(), static_cast<size_t>(steps));
    folder_ = calm.parent_path() / "disturbed";
    fs::create_directories(folder_ / "second");
    start(steps);
    disturb();
    const ProgramResult result = agents_[0]->join();
    ASSERT_EQ(result.exit_code, 0) << said();
    EXPECT_EQ(agents_[1]->join().exit_code, 0);

    const std::vector<Json> lines = steps_so_far(folder_);
    expect_same_steps(lines, expected);
    expect_exact_ledger(folder_);
    expect_same_files("weights", calm);
    expect_same_files("checkpoints", calm, /*may_be_lost=*/true);
    expect_same_files("checkpoints/step-" + std::to_string(steps), calm);
    for (const Json& event : events_named(folder_, "resume")) {
      EXPECT_TRUE(
          event.at("reason").get<std::string>().starts_with("goes on after"))
          << event;
    }
    // At the start of the next attempt, no memory of a dropped step is left.
    for (const Json& event : events_named(folder_, "memory_prediction")) {
      ADD_FAILURE() << event;
    }
    for (const auto& [kind, count] : struck_) {
      std::printf("%d x %s\n", count, kind.c_str());
    }
    EXPECT_GT(lines.back().at("generation"), 1);
    std::printf("%lld generations, slowest recovery %.2f s\n",
                lines.back().at("generation").get<long long>(), slowest_);
  }

  // The test restarts slot 1's launcher itself; slot 0's agent has a
  // supervisor.
  void kill_agent(size_t slot, int ms_until_restart = 0) {
    if (slot == 0) {
      kill_all(agents_of(agents_[0]->pid()), SIGKILL);
      return;
    }
    agents_[1]->signal(SIGKILL);
    agents_[1]->join();
    pause_ms(ms_until_restart);
    agents_[1] = std::make_unique<Program>(
        std::vector<std::string>{program("headroom"), "agent", "--coordinator",
                                 address_},
        folder_ / "second");
  }

 private:
  // Compares weights, moments, statistics and counters, and the manifests with
  // their digests. A checkpoint that rank 0 was writing when it was killed may
  // be lost, but the last one exists, and all that exist are complete.
  void expect_same_files(const std::string& name, const fs::path& calm,
                         bool may_be_lost = false) const {
    const fs::path expected = run_directory(calm) / name;
    const fs::path actual = run_directory(folder_) / name;
    int64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(expected)) {
      if (!entry.is_regular_file()) continue;
      const fs::path file = fs::relative(entry.path(), expected);
      if (may_be_lost && !fs::exists((actual / file).parent_path())) {
        std::printf("%s is lost\n", file.c_str());
        continue;
      }
      ASSERT_TRUE(fs::exists(actual / file)) << file;
      const std::string content = text_of(entry.path());
      EXPECT_TRUE(content == text_of(actual / file)) << file;
      bytes += static_cast<int64_t>(content.size());
    }
    EXPECT_GT(bytes, 1'000'000) << name;
  }

  int random(int low, int high) {
    return low +
           static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return random(0, 99) < percent; }

  static void pause_ms(int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  }

  std::string said() const {
    return text_of(folder_ / "stderr.txt") +
           text_of(folder_ / "second" / "stderr.txt");
  }

  void start(int steps) {
    // The test starts agents by hand: all use one token.
    setenv(wire::kTokenVariable, std::string(32, 't').c_str(), 1);
    std::vector<std::string> words = command(steps);
    words.insert(words.end(), {"--min-processes", "2"});
    const std::string job = "random" + std::to_string(getpid());
    agents_[0] = std::make_unique<Program>(in_slot(0, 2, job, words), folder_);
    agents_[1] = std::make_unique<Program>(in_slot(1, 2, job, words),
                                           folder_ / "second");
    ASSERT_TRUE(wait_until([&] { return !steps_so_far(folder_).empty(); }, 60))
        << said();
    const std::string words_before = "--coordinator ";
    const std::string text = said();
    const size_t begin = text.find(words_before) + words_before.size();
    address_ = text.substr(begin, text.find_first_of(" \n", begin) - begin);
  }

  bool kill_all(const std::vector<pid_t>& victims, int signal) {
    for (const pid_t pid : victims) ::kill(pid, signal);
    return !victims.empty();
  }

  // Expects that at most the last of `steps` committed steps is done again. An
  // event arrives after the steps to which it belongs.
  void expect_goes_on(size_t resumes_before, size_t steps) const {
    std::vector<Json> resumes;
    EXPECT_TRUE(wait_until(
        [&] {
          resumes = events_named(folder_, "resume");
          return resumes.size() > resumes_before;
        },
        10));
    for (size_t i = resumes_before; i < resumes.size(); ++i) {
      EXPECT_GE(resumes[i].at("step").get<size_t>() + 1, steps) << resumes[i];
    }
  }

  // Makes one fault happen, or a second one during the recovery from the first.
  // Returns after the next committed step.
  void strike(size_t after_steps) {
    ASSERT_TRUE(wait_until(
        [&] { return steps_so_far(folder_).size() >= after_steps; }, 60))
        << said();
    pause_ms(random(0, 150));
    const auto slot = static_cast<size_t>(random(0, 1));
    const int kind = random(0, 99);
    const Clock::time_point begin = Clock::now();
    const std::vector<Json> before = steps_so_far(folder_);
    const auto generation = before.back().at("generation").get<int64_t>();
    const size_t resumes = events_named(folder_, "resume").size();
    bool ends_generation = true;
    if (kind < 50) {
      ++struck_["worker killed"];
      kill_all(workers_of(agents_[slot]->pid()), SIGKILL);
    } else if (kind < 65) {
      ++struck_["worker stopped (SIGSTOP)"];
      kill_all(workers_of(agents_[slot]->pid()), SIGSTOP);
    } else if (kind < 80) {
      ++struck_["agent killed and started again"];
      kill_agent(slot);
    } else {
      ++struck_["coordinator killed"];
      ends_generation = !kill_all(coordinators_of(agents_[0]->pid()), SIGKILL);
    }
    if (ends_generation && chance(25)) {
      pause_ms(random(0, 1500));
      if (chance(50)) {
        ++struck_["and its successor killed"];
        kill_all(workers_of(agents_[slot]->pid()), SIGKILL);
      } else {
        ++struck_["and the coordinator killed"];
        kill_all(coordinators_of(agents_[0]->pid()), SIGKILL);
      }
    }
    ASSERT_TRUE(wait_until(
        [&] {
          const std::vector<Json> now = steps_so_far(folder_);
          return now.size() > before.size() &&
                 (!ends_generation || now.back().at("generation") > generation);
        },
        60))
        << said();
    slowest_ = std::max(slowest_, seconds_since(begin));
    if (ends_generation) expect_goes_on(resumes, before.size());
  }

  std::mt19937_64 random_;
  fs::path folder_;
  std::array<std::unique_ptr<Program>, 2> agents_;
  std::string address_;
  std::map<std::string, int> struck_;
  double slowest_ = 0;
};

TEST_F(RandomFaults, ChangeNothing) { run(25, 5, 3); }

class Slow : public RandomFaults {};

// The agent returns later than the time after which a rank counts as stuck.
TEST_F(Slow, AnAgentThatReturnsLateGetsTheStateOfTheOther) {
  run(25, [&] { kill_agent(1, 12'000); });
}

TEST_F(Slow, AHundredFaultsChangeNothing) { run(1000, 100, 1); }

}  // namespace
}  // namespace headroom::testing
