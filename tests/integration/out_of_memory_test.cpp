// Out of memory in every phase, in real processes. Allocations fail in forward,
// backward, validation, loader and checkpoint. The run ends with exactly the
// losses of an undisturbed run, each sample is counted once, and nothing is
// left in memory. The vote and the commit do not allocate.
//
// The suites named Slow run with the label `slow`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "tests/integration/disturbed_run.h"
#include "tests/integration/retry_times.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr int kRanks = 2;
constexpr int kFirstStep = 1, kLastStep = 3;
constexpr int kSteps = kLastStep - kFirstStep + 1;
// The number of failures of a rank in one step after which its micro-batch does
// not have to shrink yet; over the three steps, the rank tries all policies.
constexpr int kFailuresPerStep = 2;

// With 37 images in batches of 8, an epoch has five steps, followed by a
// validation and files.
std::vector<std::string> train_command(const std::vector<std::string>& more) {
  std::vector<std::string> flags = {"--epochs",      "1",        "--precision",
                                    "fp64",          "--layout", "data=2",
                                    "--activations", "keep"};
  flags.insert(flags.end(), more.begin(), more.end());
  return train_shapes("8", flags);
}

struct Finished {
  std::vector<Json> steps;
  std::vector<Json> events;
  Json summary;
};

Finished run_in(const fs::path& folder, const std::vector<std::string>& command,
                int exit_code = 0) {
  fs::create_directories(folder);
  const ProgramResult result = run_program(command, folder);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  const fs::path directory = folder / "runs/train/exp";
  return {read_lines(directory / "steps.jsonl"),
          read_lines(directory / "events.jsonl"),
          read_json(directory / "summary.json")};
}

std::string oom(int rank, int64_t step, int64_t allocation,
                const std::string& phase = "") {
  return "oom@rank=" + std::to_string(rank) + ",step=" + std::to_string(step) +
         ",allocation=" + std::to_string(allocation) +
         (phase.empty() ? "" : ",phase=" + phase);
}

std::string joined(const std::vector<std::string>& faults) {
  std::string text;
  for (const std::string& fault : faults) {
    text += (text.empty() ? "" : ";") + fault;
  }
  return text;
}

const std::vector<std::string> kPhasesOfAStep = {"", "vote", "commit",
                                                 "loader"};
const std::vector<std::string> kPhasesOfAnEnd = {"validation", "checkpoint"};
constexpr int64_t kEndOfEpoch = 5;  // counted in committed steps
constexpr int64_t kBeyond = 1000000000;

// Each fault has an allocation number that is never reached, so the events
// report the number of allocations of each phase.
struct Undisturbed {
  Finished run;
  std::map<std::string, int64_t> allocations;  // key: text of the fault

  int64_t of(int rank, int64_t step, const std::string& phase) const {
    return allocations.at(oom(rank, step, kBeyond, phase));
  }
};

const Undisturbed& undisturbed() {
  static const Undisturbed result = [] {
    Undisturbed one;
    std::vector<std::string> faults;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int64_t step = kFirstStep; step <= kLastStep; ++step) {
        for (const std::string& phase : kPhasesOfAStep) {
          faults.push_back(oom(rank, step, kBeyond, phase));
        }
      }
      for (const std::string& phase : kPhasesOfAnEnd) {
        faults.push_back(oom(rank, kEndOfEpoch, kBeyond, phase));
      }
    }
    one.run = run_in(fresh_folder() / "undisturbed",
                     train_command({"--inject", joined(faults)}));
    for (const Json& event : one.run.events) {
      if (event.at("event") != "fault") continue;
      const std::string reason = event.at("reason");
      const size_t colon = reason.find(": not reached, ");
      if (colon == std::string::npos) continue;
      one.allocations[reason.substr(0, colon)] =
          std::stoll(reason.substr(colon + 15));
    }
    EXPECT_EQ(one.allocations.size(), faults.size());
    return one;
  }();
  return result;
}

// Returns the number of one allocation: `count` numbers are spread evenly over
// the allocations, from the first to the last, and this is number `index` of
// them.
int64_t spread(int64_t allocations, int64_t index, int64_t count) {
  return count < 2 ? 1 : 1 + (allocations - 1) * index / (count - 1);
}

// The injected faults of start `index` of `count`.
std::vector<std::string> faults_of_start(int64_t index, int64_t count) {
  const Undisturbed& calm = undisturbed();
  std::vector<std::string> faults;
  const auto add = [&](int rank, int64_t step, const std::string& phase,
                       int64_t place, int64_t places) {
    const int64_t allocations = calm.of(rank, step, phase);
    if (allocations == 0) return;
    faults.push_back(
        oom(rank, step, spread(allocations, place, places), phase));
  };
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int64_t step = kFirstStep; step <= kLastStep; ++step) {
      // Each step and rank fails at other places, so that together the steps of
      // one start cover a whole step.
      const int64_t places = count * kFailuresPerStep;
      const int64_t shift =
          (rank * kSteps + step - kFirstStep) * places / (kRanks * kSteps);
      for (int64_t failure = 0; failure < kFailuresPerStep; ++failure) {
        add(rank, step, "",
            (index * kFailuresPerStep + failure + shift) % places, places);
      }
      add(rank, step, "loader", index, count);
    }
    for (const std::string& phase : kPhasesOfAnEnd) {
      add(rank, kEndOfEpoch, phase, index, count);
    }
  }
  return faults;
}

// The number of faults by the phase in which they happened; faults that did not
// happen are counted as "not reached".
std::map<std::string, int> fired(const Finished& run) {
  std::map<std::string, int> phases;
  std::map<int, std::string> last_phase;  // key: rank
  for (const Json& event : run.events) {
    const int rank = event.at("rank");
    if (event.at("event") == "out_of_memory") {
      last_phase[rank] = event.at("phase");
      EXPECT_GT(event.at("asked_bytes").get<int64_t>(), 0);
      EXPECT_TRUE(event.at("free_bytes").is_number());
      EXPECT_TRUE(event.contains("limit_bytes"));
      EXPECT_FALSE(event.at("change").get<std::string>().empty());
    }
    if (event.at("event") != "fault") continue;
    const std::string reason = event.at("reason");
    const bool was_reached = reason.find("not reached") == std::string::npos;
    ++phases[was_reached ? last_phase[rank] : "not reached"];
  }
  return phases;
}

void expect_same_run(const Finished& calm, const Finished& other) {
  ASSERT_EQ(calm.steps.size(), other.steps.size());
  for (size_t i = 0; i < calm.steps.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    for (const char* key :
         {"step", "loss", "box", "obj", "cls", "grad_norm", "samples"}) {
      EXPECT_EQ(calm.steps[i].at(key), other.steps[i].at(key)) << key;
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(calm.steps[i].at("memory").at(rank).at("live_bytes"),
                other.steps[i].at("memory").at(rank).at("live_bytes"))
          << "rank " << rank;
    }
  }
  for (const char* key : {"map", "map50", "images", "steps"}) {
    EXPECT_EQ(calm.summary.at(key), other.summary.at(key)) << key;
  }
}

void disturb(int64_t starts, int64_t of_starts) {
  const Undisturbed& calm = undisturbed();
  std::map<std::string, int> points;
  int planned = 0;
  for (int64_t i = 0; i < starts; ++i) {
    SCOPED_TRACE("start " + std::to_string(i));
    // A test with few starts takes them from the whole range.
    const int64_t index =
        starts < 2 ? of_starts / 2 : i * (of_starts - 1) / (starts - 1);
    const std::vector<std::string> faults = faults_of_start(index, of_starts);
    const Finished run = run_in(fresh_folder() / ("start" + std::to_string(i)),
                                train_command({"--inject", joined(faults)}));
    expect_same_run(calm.run, run);
    planned += static_cast<int>(faults.size());
    for (const auto& [phase, count] : fired(run)) points[phase] += count;
  }
  int total = 0;
  std::printf("%-12s points survived\n", "phase");
  for (const auto& [phase, count] : points) {
    std::printf("%-12s %d\n", phase.c_str(), count);
    if (phase != "not reached") total += count;
  }
  std::printf("%-12s %d of %d in %d starts\n", "all", total, planned,
              static_cast<int>(starts));
  EXPECT_EQ(total, planned);
  for (const char* phase :
       {"forward", "backward", "validation", "loader", "checkpoint"}) {
    EXPECT_GT(points[phase], 0) << phase;
  }
  if (starts == of_starts) {
    EXPECT_GE(total, 300);
  }
}

TEST(OutOfMemoryRun, NeitherVoteNorCommitAllocates) {
  const Undisturbed& calm = undisturbed();
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int64_t step = kFirstStep; step <= kLastStep; ++step) {
      EXPECT_EQ(calm.of(rank, step, "vote"), 0);
      EXPECT_EQ(calm.of(rank, step, "commit"), 0);
      EXPECT_GT(calm.of(rank, step, ""), 500);
    }
  }
}

TEST(OutOfMemoryRun, AFewFailuresOfEveryKind) { disturb(1, 20); }

TEST(Slow, OutOfMemoryAtHundredsOfAllocations) { disturb(20, 20); }

// Memory is refused once in each step, on the ranks in turn.
TEST(Slow, ARetryOfTwoOrFourProcessesTakesSeconds) {
  for (const int ranks : {2, 4}) {
    const std::vector<std::string> command =
        train_command({"--layout", "data=" + std::to_string(ranks), "--noval"});
    const std::string name = std::to_string(ranks) + " processes";
    const Finished calm =
        run_in(fresh_folder() / ("calm" + std::to_string(ranks)), command);
    std::vector<std::string> faults, flags = command;
    for (int step = 0; step < kEndOfEpoch; ++step) {
      faults.push_back(oom((step + 1) % ranks, step, 30 + 110 * step));
    }
    flags.insert(flags.end(), {"--inject", joined(faults)});
    const fs::path folder = fresh_folder() / ("run" + std::to_string(ranks));
    const Finished run = run_in(folder, flags);
    expect_same_steps(run.steps, calm.steps);
    const RetryTimes times = retry_times(folder);
    times.print(name);
    EXPECT_EQ(times.count(), faults.size());
    EXPECT_LT(times.longest(), 2);
  }
}

// Memory is refused so often in the first step that micro-batches must shrink.
TEST(Slow, ASmallerMicroBatchStaysWithinTheTolerance) {
  const std::vector<std::string> groups = {"--bn-group", "2", "--noval",
                                           "--max-steps", "4"};
  const Finished calm =
      run_in(fresh_folder() / "undisturbed", train_command(groups));
  std::vector<std::string> flags = groups;
  flags.push_back("--inject");
  std::vector<std::string> faults;
  for (int failure = 0; failure < 5; ++failure) {
    faults.push_back(oom(1, 0, 100 + 150 * failure));
  }
  flags.push_back(joined(faults));
  const fs::path folder = fresh_folder() / "disturbed";
  const Finished run = run_in(folder, train_command(flags));
  EXPECT_EQ(fired(run)["not reached"], 0);
  const RetryTimes times = retry_times(folder);
  times.print("five rungs");
  const double until_the_step_is_done =
      times.whole() + run.steps.at(0).at("seconds").get<double>();
  std::printf("five rungs: the first step was done after %.2f s\n",
              until_the_step_is_done);
  EXPECT_LT(until_the_step_is_done, 12);
  const auto shrank = std::ranges::any_of(run.events, [](const Json& event) {
    return event.at("event") == "out_of_memory" &&
           event.at("change").get<std::string>().find(
               "micro-batches of 2 on all ranks") != std::string::npos;
  });
  EXPECT_TRUE(shrank);
  expect_equivalent(calm.steps, run.steps);
}

// Another process takes two fifths of the limit in the middle of a run.
TEST(OutOfMemoryRun, ABallastLeadsToALeanerPlan) {
  const auto command = [](const std::vector<std::string>& more) {
    return testing::joined(
        train_shapes("8",
                     {"--img", "256", "--bn-group", "8", "--processes", "1",
                      "--activations", "keep", "--noval", "--max-steps", "4"}),
        more);
  };
  const Finished calm = run_in(fresh_folder() / "calm", command({}));
  ASSERT_EQ(calm.steps.size(), 4u);
  const int64_t cap = measured_peaks(calm.steps).at(0) * 6 / 5;
  const int64_t ballast = cap * 2 / 5;
  const Finished run = run_in(
      fresh_folder() / "ballast",
      command({"--memory-limit", std::to_string(cap), "--inject",
               "ballast@rank=0,step=2,bytes=" + std::to_string(ballast)}));
  ASSERT_EQ(run.steps.size(), 4u);
  for (size_t step = 0; step < 4; ++step) {
    for (const char* key : {"loss", "grad_norm", "samples"}) {
      EXPECT_EQ(run.steps[step].at(key), calm.steps[step].at(key)) << key;
    }
    EXPECT_EQ(run.steps[step].at("attempt").get<int64_t>() > 1, step == 2)
        << step;
  }
  EXPECT_LE(measured_peaks(run.steps).at(0), cap);
  EXPECT_EQ(
      run.steps[3].at("memory").at(0).at("live_bytes").get<int64_t>() -
          calm.steps[3].at("memory").at(0).at("live_bytes").get<int64_t>(),
      ballast);
  const auto leaner = std::ranges::count_if(run.events, [&](const Json& event) {
    return event.at("event") == "out_of_memory" &&
           event.at("limit_bytes") == cap &&
           event.at("change").get<std::string>().find("from now on") !=
               std::string::npos;
  });
  EXPECT_GE(leaner, 1);
}

// The machine itself refuses memory: the run ends at a committed step, and its
// state is saved.
TEST(OutOfMemoryRun, AHostWithoutMemoryEndsTheRunAtACommittedStep) {
  // Ballasts of decreasing size fill the memory that the process may use.
  std::vector<std::string> faults;
  int64_t step = 2;
  for (int64_t megabytes = 2048; megabytes >= 4; megabytes /= 2) {
    for (int twice = 0; twice < 2; ++twice) {
      faults.push_back("ballast@rank=0,step=" + std::to_string(step++) +
                       ",bytes=" + std::to_string(megabytes << 20));
    }
  }
  std::string line = "ulimit -v 4000000; exec";
  for (const std::string& word : train_shapes(
           "8", {"--epochs", "40", "--precision", "fp64", "--processes", "1",
                 "--noval", "--inject", joined(faults)})) {
    line += " '" + word + "'";
  }
  const fs::path folder = fresh_folder();
  const ProgramResult result = run_program({"sh", "-c", line}, folder);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  const fs::path directory = folder / "runs/train/exp";
  const auto steps = read_lines(directory / "steps.jsonl");
  ASSERT_GE(steps.size(), 2u) << result.err;
  EXPECT_THAT(result.err, HasSubstr("memory"));
  EXPECT_THAT(result.err, HasSubstr("--resume"));
  EXPECT_THAT(result.err, Not(HasSubstr("terminate")));
  EXPECT_TRUE(fs::exists(directory / "checkpoints" /
                         ("step-" + std::to_string(steps.size())) /
                         "MANIFEST.json"))
      << result.err;
}

}  // namespace
}  // namespace headroom::testing
