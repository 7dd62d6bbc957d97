// Failures of a process's card, on test devices and with a replacement for
// NCCL. The run loses one worker and one step, as after a SIGKILL. A card that
// fails twice is no longer used. When the last card fails, the run ends with a
// message that says what the user can do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/integration/disturbed_run.h"
#include "tests/integration/headroom_run.h"
#include "tests/integration/kill_cells.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kStep = 4;
const std::string kCard1 = "test device (GPU-test-1, 0000:02:00.0)";
const std::string kWords =
    "CUDA error: unspecified launch failure (cudaErrorLaunchFailure)";

class Variable {
 public:
  Variable(std::string name, const std::string& value)
      : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_.c_str()); }

 private:
  const std::string name_;
};

Variable test_devices() {
  return {"HEADROOM_DEVICE_PLUGIN",
          std::string(HEADROOM_BUILD_DIR) + "/tests/libheadroom_testdevice.so"};
}

using Words = std::vector<std::string>;

Words command() {
  return joined(train_fp64("8"), {"--max-steps", std::to_string(kKillSteps)});
}

Words on_cards(const std::string& cards, const Words& layout) {
  return joined(joined(command(), {"--device", cards, "--backend", "nccl"}),
                layout);
}

const std::vector<Json>& one_process(const Words& more) {
  static std::map<Words, std::vector<Json>> runs;
  auto& steps = runs[more];
  if (steps.empty()) {
    // The test's own folder is used for the run with the failure.
    const fs::path folder =
        fs::path(HEADROOM_BUILD_DIR) / "tests/runs/CardFailuresOneProcess";
    fs::remove_all(folder);
    steps = train_in(folder, joined(command(), {"--processes", "1"}), more);
  }
  return steps;
}

// Expects that every step occurs once, with the losses of an undisturbed run.
void expect_calm_results(const fs::path& folder, const Words& for_one = {}) {
  const std::vector<Json> steps = steps_so_far(folder);
  const std::vector<Json>& expected = one_process(for_one);
  ASSERT_EQ(steps.size(), expected.size());
  expect_equivalent(expected, steps);
  expect_exact_ledger(folder);
}

struct Cell {
  std::string name;
  Words layout;
  Words for_one_process;
  std::string phase;
  int rank = 1;
};

void PrintTo(const Cell& cell, std::ostream* out) { *out << cell.name; }

class CardFailure : public ::testing::TestWithParam<Cell> {};

TEST_P(CardFailure, CostsAWorkerAndAStep) {
  const Cell& cell = GetParam();
  const Variable devices = test_devices();
  const fs::path folder = fresh_folder();
  const ProgramResult result = run_program(
      joined(
          on_cards("0,1", cell.layout),
          {"--inject", fault_at("device_error", cell.rank, kStep, cell.phase)}),
      folder);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  // A rank that waits for the peer with the failed card must be released before
  // the time limit of a collective.
  EXPECT_LT(result.seconds, 60) << result.err;
  expect_calm_results(folder, cell.for_one_process);
  const std::vector<Json> failures = events_named(folder, "card_failure");
  ASSERT_EQ(failures.size(), 1u) << result.err;
  EXPECT_EQ(failures[0].at("rank"), cell.rank);
  EXPECT_EQ(failures[0].at("left_out"), false);
  EXPECT_EQ(failures[0].at("card").at("uuid"),
            "GPU-test-" + std::to_string(cell.rank));
  const std::string reason = failures[0].at("reason");
  EXPECT_THAT(reason, HasSubstr(kWords));
  EXPECT_THAT(reason, HasSubstr("its worker is started again"));
  EXPECT_EQ(events_named(folder, "loss_of_process").size(), 1u) << result.err;
  EXPECT_EQ(steps_so_far(folder).back().at("generation"), 2) << result.err;
  for (const Json& event : events_named(folder, "resume")) {
    EXPECT_GE(event.at("step").get<int>(), kStep - 1) << event;
  }
  EXPECT_EQ(result.err.find("stuck"), std::string::npos) << result.err;
}

Words zero(int stage) {
  return {"--layout", "data=2", "--zero", std::to_string(stage)};
}

std::vector<Cell> cells(const Words& layout, const std::string& name,
                        const Words& for_one_process = {}) {
  std::vector<Cell> cells;
  for (const char* phase : {"forward", "backward", "commit", "collective"}) {
    for (const int rank : {0, 1}) {
      cells.push_back({name + "_" + phase + "_rank_" + std::to_string(rank),
                       layout, for_one_process, phase, rank});
    }
  }
  return cells;
}

std::vector<Cell> all_cells() {
  std::vector<Cell> all;
  const auto add = [&](const std::vector<Cell>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  add(cells(zero(0), "zero_0"));
  add(cells(zero(1), "zero_1"));
  add(cells(zero(3), "zero_3"));
  add(cells({"--layout", "spatial=2"}, "spatial"));
  std::vector<Cell> stages = cells({"--layout", "pipeline=2"}, "pipeline");
  // Pipeline stages only send messages to each other, so no collective can
  // fail.
  std::erase_if(stages,
                [](const Cell& cell) { return cell.phase == "collective"; });
  add(stages);
  add(cells({"--layout", "data=2", "--cuda-graphs", "--bn-group", "4"},
            "graphs", {"--bn-group", "4"}));
  return all;
}

std::vector<Cell> quick_cells() {
  std::vector<Cell> quick;
  for (const Cell& cell : cells(zero(0), "zero_0")) {
    const bool is_quick = cell.phase == "forward" || cell.phase == "collective";
    if (cell.rank == 1 && is_quick) quick.push_back(cell);
  }
  // The rows that spatial ranks exchange do not go through NCCL, whose sums are
  // blocked here.
  quick.push_back(cells({"--layout", "spatial=2"}, "spatial").back());
  return quick;
}

std::string name_of_cell(const ::testing::TestParamInfo<Cell>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Slow, CardFailure, ::testing::ValuesIn(all_cells()),
                         name_of_cell);
INSTANTIATE_TEST_SUITE_P(Quick, CardFailure, ::testing::ValuesIn(quick_cells()),
                         name_of_cell);

TEST(CardFailures,
     ASecondFailureExcludesTheCardAndTheRunContinuesWithTheOther) {
  const Variable devices = test_devices();
  const fs::path folder = fresh_folder();
  const ProgramResult result = run_program(
      joined(on_cards("0,1", zero(0)), {"--inject",
                                        "device_error@rank=1,step=3;"
                                        "device_error@rank=1,step=5"}),
      folder);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_calm_results(folder);
  const std::vector<Json> failures = events_named(folder, "card_failure");
  ASSERT_EQ(failures.size(), 2u) << result.err;
  EXPECT_EQ(failures[1].at("left_out"), true);
  EXPECT_THAT(failures[1].at("reason").get<std::string>(),
              HasSubstr("card " + kCard1));
  EXPECT_THAT(failures[1].at("reason").get<std::string>(),
              HasSubstr("it failed after 3 and after 5 steps, twice within "
                        "1000 steps: it is left out"));
  const std::vector<Json> generations = events_named(folder, "generation");
  ASSERT_EQ(generations.size(), 3u) << result.err;
  EXPECT_EQ(generations.back().at("world_size"), 1);
  const std::vector<Json> ends = events_named(folder, "restart");
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_THAT(ends[1].at("reason").get<std::string>(),
              HasSubstr("its card " + kCard1 + " is left out"));
}

TEST(CardFailures, SoManyStepsApartTheyAreTwoFirstFailures) {
  const Variable devices = test_devices();
  const fs::path folder = fresh_folder();
  const ProgramResult result = run_program(
      joined(on_cards("0,1", zero(0)),
             {"--set", "card_failure_steps=1", "--inject",
              "device_error@rank=1,step=2;device_error@rank=1,step=5"}),
      folder);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_calm_results(folder);
  for (const Json& event : events_named(folder, "card_failure")) {
    EXPECT_EQ(event.at("left_out"), false) << event;
  }
  EXPECT_EQ(steps_so_far(folder).back().at("generation"), 3);
}

TEST(CardFailures, TheRunEndsWithARemedyWhenTheLastCardFails) {
  const fs::path folder = fresh_folder();
  {
    const Variable devices = test_devices();
    const ProgramResult result = run_program(
        joined(command(), {"--device", "0", "--processes", "1", "--set",
                           "checkpoint_every_steps=2", "--inject",
                           "device_error@rank=0,step=3;"
                           "device_error@rank=0,step=5"}),
        folder);
    EXPECT_EQ(result.exit_code, 5) << result.err;
    for (const char* part :
         {"lost its card test device (GPU-test-0, 0000:01:00.0)",
          "unspecified launch failure",
          "no card is left: replace it, or name "
          "others with --device",
          "headroom train --resume"}) {
      EXPECT_THAT(result.err, HasSubstr(part));
    }
    EXPECT_EQ(events_named(folder, "run_over").back().at("exit_code"), 5);
  }
  // The resume command in the message works, here on the CPU.
  const ProgramResult resumed =
      run_program({program("headroom"), "train", "--resume",
                   run_directory(folder).string(), "--device", "cpu"},
                  folder);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_calm_results(folder);
}

// All ranks but rank 3 report an error of their card.
TEST(CardFailures, ACascadeOfFailuresIsOneEventAndCountsAgainstOneCard) {
  const Variable devices = test_devices();
  const fs::path folder = fresh_folder();
  const ProgramResult result =
      run_program(joined(on_cards("0,1,2,3", {"--layout", "data=4"}),
                         {"--inject",
                          "device_error@rank=0,step=4;"
                          "device_error@rank=1,step=4;"
                          "device_error@rank=2,step=4"}),
                  folder);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_calm_results(folder);
  const std::vector<Json> failures = events_named(folder, "card_failure");
  ASSERT_EQ(failures.size(), 1u) << result.err;
  const std::vector<Json> losses = events_named(folder, "loss_of_process");
  ASSERT_EQ(losses.size(), 3u) << result.err;
  EXPECT_EQ(losses[0].at("rank"), failures[0].at("rank"));
  for (size_t i = 1; i < losses.size(); ++i) {
    EXPECT_THAT(losses[i].at("reason").get<std::string>(),
                HasSubstr("taken for a consequence"));
  }
  EXPECT_EQ(steps_so_far(folder).back().at("generation"), 2);
  EXPECT_EQ(events_named(folder, "generation").back().at("world_size"), 4);
}

// When a card is missing, the cards behind it get other numbers.
TEST(CardFailures, ACardThatTheDriverNoLongerListsIsLeftOut) {
  const Variable devices = test_devices();
  const fs::path folder = fresh_folder();
  const fs::path listed = folder / "cards.txt";
  std::ofstream(listed) << "0 1 2";
  const Variable cards("HEADROOM_TEST_CARDS", listed.string());
  Program run(joined(on_cards("0,1,2", {"--layout", "data=3"}),
                     {"--inject", "device_error@rank=1,step=4"}),
              folder);
  EXPECT_TRUE(wait_until(
      [&] {
        return text_of(folder / "stderr.txt").find("--inject device_error@") !=
               std::string::npos;
      },
      120));
  std::ofstream(listed) << "0 2";
  const ProgramResult result = run.join();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> failures = events_named(folder, "card_failure");
  ASSERT_EQ(failures.size(), 2u) << result.err;
  EXPECT_EQ(failures[1].at("left_out"), true);
  EXPECT_THAT(failures[1].at("reason").get<std::string>(),
              HasSubstr("card " + kCard1));
  EXPECT_THAT(failures[1].at("reason").get<std::string>(),
              HasSubstr("its driver no longer lists it"));
  EXPECT_EQ(steps_so_far(folder).size(), static_cast<size_t>(kKillSteps));
  expect_exact_ledger(folder);
}

TEST(CardFailures, WhereThereIsNoCardTheFaultIsRefused) {
  const ProgramResult result =
      run_program(joined(command(), {"--inject", "device_error@rank=0,step=3"}),
                  fresh_folder());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              HasSubstr("device_error@rank=0,step=3,phase=forward: the run is "
                        "on the CPU, which has no card: name a card with "
                        "--device"));
}

TEST(CardFailures, WithoutGradientSumsAnInjectedFaultOfSumsIsRefused) {
  const Variable devices = test_devices();
  const ProgramResult result = run_program(
      joined(on_cards("0,1", {"--layout", "pipeline=2"}),
             {"--inject", "device_error@rank=1,step=3,phase=collective"}),
      fresh_folder());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the ranks sum nothing over NCCL"));
}

}  // namespace
}  // namespace headroom::testing
