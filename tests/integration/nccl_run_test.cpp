// Whole programs that use NCCL's own communicator code: two processes on two
// test devices, with a replacement for NCCL (tests/support/nccl_shim),
// undisturbed and disturbed. The run equals that of one process on the CPU, no
// living process is reported lost, and at most one step is done again.
//
//   kill          a rank is killed in the middle of its backward
//   stop          a rank's process is stopped for 15 s, and then continues
//   late          a rank is 13 s late for a collective, which is longer than a
//                 training thread may be stuck
//   aborted       a collective fails: its sum is unusable, but no peer is lost
//   coordinator   the coordinator is killed, and its supervisor restarts it
//
// Prints a table at the end. The suites named Slow run with the label `slow`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/disturbed_run.h"
#include "tests/integration/kill_cells.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

const std::string kTestPlugin =
    std::string(HEADROOM_BUILD_DIR) + "/tests/libheadroom_testdevice.so";

enum class Disturbance { kNone, kKill, kStop, kLate, kAborted, kCoordinator };

struct Layout {
  std::string name;
  std::vector<std::string> flags;
  std::vector<std::string> for_one_process;  // flags that change the result
};

struct Cell {
  Layout layout;
  Disturbance disturbance = Disturbance::kNone;
};

std::string name_of(Disturbance disturbance) {
  static const std::map<Disturbance, std::string> names = {
      {Disturbance::kNone, "calm"},
      {Disturbance::kKill, "kill"},
      {Disturbance::kStop, "stop"},
      {Disturbance::kLate, "late"},
      {Disturbance::kAborted, "aborted"},
      {Disturbance::kCoordinator, "coordinator"}};
  return names.at(disturbance);
}

void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.layout.name << "_" << name_of(cell.disturbance);
}

std::string name_of_cell(const ::testing::TestParamInfo<Cell>& info) {
  return info.param.layout.name + "_" + name_of(info.param.disturbance);
}

Layout data_2(int zero) {
  return {"data_2_zero_" + std::to_string(zero),
          {"--layout", "data=2", "--zero", std::to_string(zero)},
          {}};
}
// Groups of 4 are on one rank each.
const Layout kOwnGroups = {"own_groups",
                           {"--layout", "data=2", "--bn-group", "4"},
                           {"--bn-group", "4"}};
const Layout kPipeline = {"pipeline_2", {"--layout", "pipeline=2"}, {}};
const Layout kSpatial = {"spatial_2", {"--layout", "spatial=2"}, {}};
const Layout kGraphs = {
    "graphs_data_2",
    {"--layout", "data=2", "--cuda-graphs", "--bn-group", "4"},
    {"--bn-group", "4"}};

// Sets environment variables for programs within a scope.
class Variables {
 public:
  explicit Variables(std::map<std::string, std::string> values)
      : values_(std::move(values)) {
    for (const auto& [name, value] : values_) {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Variables() {
    for (const auto& [name, value] : values_) unsetenv(name.c_str());
  }

 private:
  const std::map<std::string, std::string> values_;
};

std::vector<std::string> command() {
  std::vector<std::string> words = train_fp64("8");
  words.insert(words.end(), {"--max-steps", std::to_string(kKillSteps)});
  return words;
}

const std::vector<Json>& one_process(const Layout& layout) {
  static std::map<std::vector<std::string>, std::vector<Json>> runs;
  auto& steps = runs[layout.for_one_process];
  if (steps.empty()) {
    steps = train_in(fresh_folder() / "one",
                     joined(command(), {"--processes", "1"}),
                     layout.for_one_process);
  }
  return steps;
}

class NcclTable : public ::testing::Environment {
 public:
  struct Row {
    std::string layout, disturbance;
    double loss = 0;  // the largest relative difference
    std::optional<double> noticed, next_step;
    int losses = 0;
  };
  static std::vector<Row>& rows() {
    static std::vector<Row> all;
    return all;
  }
  void TearDown() override {
    if (rows().empty()) return;
    std::printf("\n%-16s %-12s %12s %11s %12s %6s\n", "layout", "disturbed by",
                "loss differs", "noticed, s", "next step, s", "lost");
    for (const Row& row : rows()) {
      std::printf("%-16s %-12s %12.1e %11s %12s %6d\n", row.layout.c_str(),
                  row.disturbance.c_str(), row.loss,
                  text_of(row.noticed).c_str(), text_of(row.next_step).c_str(),
                  row.losses);
    }
  }

 private:
  static std::string text_of(const std::optional<double>& seconds) {
    if (!seconds) return "-";
    char text[16];
    std::snprintf(text, sizeof(text), "%.2f", *seconds);
    return text;
  }
};

const auto* const nccl_table =
    ::testing::AddGlobalTestEnvironment(new NcclTable);

class NcclRun : public ::testing::TestWithParam<Cell> {
 protected:
  static constexpr int kStep = 4;

  std::string said() const { return text_of(folder_ / "stderr.txt"); }
  size_t num_losses() const {
    return events_named(folder_, "loss_of_process").size();
  }

  std::map<std::string, std::string> variables() const {
    std::map<std::string, std::string> values = {
        {"HEADROOM_DEVICE_PLUGIN",
         std::string(HEADROOM_BUILD_DIR) + "/tests/libheadroom_testdevice.so"}};
    if (GetParam().disturbance == Disturbance::kLate) {
      values["HEADROOM_NCCL_FAULTS"] = late_call() + ",kind=delay,ms=13000";
    }
    if (GetParam().disturbance == Disturbance::kAborted) {
      values["HEADROOM_NCCL_FAULTS"] = late_call() + ",kind=fail,result=6";
    }
    return values;
  }

  // The rank's call that is disturbed, about in the third step. If batch norm
  // sums over ranks, most all-reduces belong to batch norm.
  std::string late_call() const {
    const auto& flags = GetParam().layout.flags;
    const auto has = [&](const char* flag) {
      return std::find(flags.begin(), flags.end(), flag) != flags.end();
    };
    if (has("3")) return "call=AllGather,rank=1,nth=120";
    // Each direction has a communicator, in which rank 1 receives.
    if (has("pipeline=2")) return "call=SendRecv,rank=1,nth=6";
    if (has("spatial=2")) return "call=SendRecv,rank=1,nth=150";
    return has("--bn-group") ? "call=AllReduce,rank=1,nth=24"
                             : "call=AllReduce,rank=1,nth=260";
  }

  std::vector<std::string> words() const {
    std::vector<std::string> words = command();
    words.insert(words.end(), {"--device", "0,1", "--backend", "nccl"});
    const auto& flags = GetParam().layout.flags;
    words.insert(words.end(), flags.begin(), flags.end());
    switch (GetParam().disturbance) {
      case Disturbance::kKill:
        return joined(words,
                      {"--inject", fault_at("kill", 1, kStep, "backward")});
      case Disturbance::kStop:
      case Disturbance::kCoordinator:
        return joined(words,
                      {"--inject",
                       fault_at("pause", 0, kStep, "forward") + ",seconds=1"});
      default:
        return words;
    }
  }

  void wait_for_pause() const {
    EXPECT_TRUE(wait_until(
        [&] { return said().find("--inject pause@") != std::string::npos; },
        120))
        << said();
  }

  // Waits until a worker is reported lost; returns the seconds since `begin`.
  std::optional<double> notice(Clock::time_point begin) const {
    EXPECT_TRUE(wait_until([&] { return num_losses() > 0; }, 30)) << said();
    return seconds_since(begin);
  }

  std::optional<double> next_step(Clock::time_point begin) const {
    EXPECT_TRUE(wait_until(
        [&] {
          const std::vector<Json> steps = steps_so_far(folder_);
          return !steps.empty() && steps.back().at("generation") > 1;
        },
        60))
        << said();
    return seconds_since(begin);
  }

  void disturb(const Program& run, NcclTable::Row& row) {
    switch (GetParam().disturbance) {
      case Disturbance::kKill: {
        EXPECT_TRUE(wait_until(
            [&] { return said().find("--inject kill@") != std::string::npos; },
            120))
            << said();
        const Clock::time_point killed = Clock::now();
        row.noticed = notice(killed);
        row.next_step = next_step(killed);
        EXPECT_LT(*row.noticed, 2);
        EXPECT_LT(*row.next_step, 10);
        return;
      }
      case Disturbance::kStop: {
        wait_for_pause();
        const pid_t stopped = workers_of(run.pid()).at(1);
        ::kill(stopped, SIGSTOP);
        const Clock::time_point begin = Clock::now();
        std::thread goes_on([stopped] {
          std::this_thread::sleep_for(std::chrono::seconds(15));
          ::kill(stopped, SIGCONT);
        });
        row.noticed = notice(begin);
        row.next_step = next_step(begin);
        goes_on.join();
        EXPECT_LT(*row.noticed, 4) << "2 s of silence";
        EXPECT_LT(*row.next_step, 12);
        return;
      }
      case Disturbance::kCoordinator: {
        wait_for_pause();
        const size_t before = steps_so_far(folder_).size();
        for (const pid_t pid : coordinators_of(run.pid())) {
          ::kill(pid, SIGKILL);
        }
        const Clock::time_point killed = Clock::now();
        EXPECT_TRUE(wait_until(
            [&] {
              return said().find("the coordinator was killed") !=
                     std::string::npos;
            },
            30));
        row.noticed = seconds_since(killed);
        EXPECT_TRUE(wait_until(
            [&] { return steps_so_far(folder_).size() > before; }, 60));
        row.next_step = seconds_since(killed);
        return;
      }
      default:
        return;
    }
  }

  fs::path folder_;
};

TEST_P(NcclRun, EqualsOneProcess) {
  const Cell& cell = GetParam();
  const std::vector<Json>& expected = one_process(cell.layout);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kKillSteps));
  folder_ = fresh_folder();
  const Variables environment(variables());
  NcclTable::Row row;
  row.layout = cell.layout.name;
  row.disturbance = name_of(cell.disturbance);
  Program run(words(), folder_);
  disturb(run, row);
  const ProgramResult result = run.join();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  if (cell.disturbance == Disturbance::kLate) {
    EXPECT_GT(result.seconds, 13) << "no call was late";
  }

  const std::vector<Json> steps = steps_so_far(folder_);
  ASSERT_EQ(steps.size(), expected.size());
  expect_equivalent(expected, steps);
  expect_exact_ledger(folder_);
  for (size_t i = 0; i < steps.size(); ++i) {
    row.loss = std::max(row.loss, relative(expected[i], steps[i], "loss"));
  }
  row.losses = static_cast<int>(num_losses());
  const bool loses_one = cell.disturbance == Disturbance::kKill ||
                         cell.disturbance == Disturbance::kStop;
  EXPECT_EQ(row.losses, loses_one ? 1 : 0) << result.err;
  const bool goes_on = loses_one || cell.disturbance == Disturbance::kAborted;
  EXPECT_EQ(steps.back().at("generation"), goes_on ? 2 : 1) << result.err;
  for (const Json& event : events_named(folder_, "resume")) {
    EXPECT_GE(event.at("step").get<int>(), goes_on ? 1 : kStep - 1) << event;
  }
  EXPECT_THAT(result.err, Not(HasSubstr("stuck")));
  NcclTable::rows().push_back(row);
}

// The run is refused with a remedy, and no peer is reported lost.
TEST(NcclRunRefusals, ADeviceWithoutRoomForNcclIsReported) {
  const fs::path folder = fresh_folder();
  const Variables environment(
      {{"HEADROOM_DEVICE_PLUGIN", kTestPlugin},
       {"HEADROOM_NCCL_FAULTS", "call=CommInitRankScalable,rank=1,kind=full"}});
  const ProgramResult result = run_program(
      joined(command(),
             {"--device", "0,1", "--backend", "nccl", "--layout", "data=2"}),
      folder);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("the device has no memory for NCCL's buffers"));
  EXPECT_THAT(result.err, HasSubstr("use a smaller --batch"));
  EXPECT_LT(result.seconds, 60);
}

// Each case gives one clear line, and no peer is reported lost.
TEST(NcclRunRefusals, SettingsThatNcclCannotUseAreReportedWithARemedy) {
  struct Case {
    std::map<std::string, std::string> variables;
    std::vector<std::string> flags;
    const char* says;
    const char* remedy;
  };
  for (const Case& one :
       {Case{{{"NCCL_SOCKET_IFNAME", "nosuch0"}},
             {},
             "NCCL_SOCKET_IFNAME=nosuch0 names no interface of this machine",
             "name one of lo"},
        Case{{{"HEADROOM_NCCL_VERSION", "21805"}},
             {},
             "NCCL 2.18.5 was loaded from",
             "LD_LIBRARY_PATH"},
        Case{{},
             {"--require-rate", "100000"},
             "--require-rate asks for 100000 GB/s",
             "usual causes"}}) {
    SCOPED_TRACE(one.says);
    std::map<std::string, std::string> variables = one.variables;
    variables["HEADROOM_DEVICE_PLUGIN"] = kTestPlugin;
    const Variables environment(variables);
    const ProgramResult result =
        run_program(joined(joined(command(), {"--device", "0,1", "--backend",
                                              "nccl", "--layout", "data=2"}),
                           one.flags),
                    fresh_folder());
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(one.says));
    EXPECT_THAT(result.err, HasSubstr(one.remedy));
    EXPECT_LT(result.seconds, 60);
  }
}

TEST(NcclRunNetwork, TheRateOfTheFirstSumsIsReported) {
  const fs::path folder = fresh_folder();
  const Variables environment({{"HEADROOM_DEVICE_PLUGIN", kTestPlugin}});
  train_in(folder, command(),
           {"--device", "0,1", "--backend", "nccl", "--layout", "data=2",
            "--max-steps", "1"});
  const std::vector<Json> said = events_named(folder, "network");
  ASSERT_EQ(said.size(), 1u);
  const auto reason = said.front().at("reason").get<std::string>();
  EXPECT_EQ(reason.find("NCCL: "), 0u) << reason;
  EXPECT_THAT(reason, HasSubstr(" GB/s between the cards of this machine"));
}

// NCCL refuses two ranks on one device of a host, unless each rank has its own
// host name.
TEST(NcclRunRefusals, RanksThatShareADeviceCountAsSeparateHosts) {
  const fs::path folder = fresh_folder();
  const Variables environment({{"HEADROOM_DEVICE_PLUGIN", kTestPlugin}});
  const std::vector<Json> steps =
      train_in(folder, command(),
               {"--device", "0", "--backend", "nccl", "--layout", "data=2",
                "--set", "share_devices=true", "--max-steps", "2"});
  EXPECT_EQ(steps.size(), 2u);
}

class NcclRunEnds : public ::testing::Test {
 protected:
  static std::vector<std::string> words() {
    return joined(joined(command(), kOwnGroups.flags),
                  {"--device", "0,1", "--backend", "nccl"});
  }
  // Resumes the run, and expects the bits of a run without the disturbance.
  void expect_resumes(const fs::path& folder) {
    const ProgramResult resumed =
        run_program({program("headroom"), "train", "--resume",
                     run_directory(folder).string(), "--inject",
                     fault_at("pause", 0, 1000, "forward") + ",seconds=1"},
                    folder);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    const std::vector<Json> steps = steps_so_far(folder);
    expect_exact_ledger(folder);
    expect_same_steps(steps, train_in(fresh_folder() / "calm", words(), {}));
  }

  const Variables environment_{{{"HEADROOM_DEVICE_PLUGIN", kTestPlugin}}};
};

TEST_F(NcclRunEnds, ANanOnOneRankEndsTheRunOnAllWithTheirCommittedState) {
  const fs::path folder = fresh_folder();
  const ProgramResult run =
      run_program(joined(words(), {"--inject", "nan@rank=1,step=4"}), folder);
  EXPECT_EQ(run.exit_code, 5) << run.err;
  EXPECT_THAT(run.err, HasSubstr("step 4, rank 1: the loss or the gradient"));
  EXPECT_EQ(steps_so_far(folder).size(), 4u);
  expect_resumes(folder);
}

TEST_F(NcclRunEnds, AStopRequestIsSeenByAllInTheSameStep) {
  const fs::path folder = fresh_folder();
  Program run(joined(words(), {"--inject", fault_at("pause", 0, 4, "forward") +
                                               ",seconds=2"}),
              folder);
  EXPECT_TRUE(wait_until(
      [&] {
        return text_of(folder / "stderr.txt").find("--inject pause@") !=
               std::string::npos;
      },
      120));
  run.signal(SIGINT);
  const ProgramResult result = run.join();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(steps_so_far(folder).size(), 5u) << result.err;
  expect_resumes(folder);
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const Layout& layout : {data_2(0), data_2(1), data_2(2), data_2(3),
                               kPipeline, kSpatial, kGraphs, kOwnGroups}) {
    for (const Disturbance disturbance :
         {Disturbance::kNone, Disturbance::kKill, Disturbance::kStop,
          Disturbance::kCoordinator}) {
      cells.push_back({layout, disturbance});
    }
  }
  for (const Layout& layout :
       {data_2(1), data_2(3), kGraphs, kOwnGroups, kPipeline, kSpatial}) {
    cells.push_back({layout, Disturbance::kLate});
    cells.push_back({layout, Disturbance::kAborted});
  }
  return cells;
}

INSTANTIATE_TEST_SUITE_P(Slow, NcclRun, ::testing::ValuesIn(all_cells()),
                         name_of_cell);

INSTANTIATE_TEST_SUITE_P(Quick, NcclRun,
                         ::testing::Values(Cell{data_2(1), Disturbance::kKill},
                                           Cell{data_2(2), Disturbance::kStop},
                                           Cell{data_2(3), Disturbance::kNone},
                                           Cell{kGraphs, Disturbance::kNone},
                                           Cell{kOwnGroups,
                                                Disturbance::kAborted},
                                           Cell{kPipeline, Disturbance::kKill},
                                           Cell{kSpatial, Disturbance::kNone}),
                         name_of_cell);

}  // namespace
}  // namespace headroom::testing
