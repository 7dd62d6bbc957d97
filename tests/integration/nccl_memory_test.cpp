// A rank without memory on devices, in whole programs over NCCL's own
// communicator code: two processes on two test devices, with a stand-in for
// NCCL (tests/support/nccl_shim), whose streams deadlock as NCCL's do where
// ranks issue collectives in different orders.
//
// Memory is refused in forward, in backward, and beside the commit (the last
// allocation of a step, and the first of the next one), on either rank and on
// both, in one run after the other step. Every refusal is survived without a
// lost process or step, and the losses are those of a calm run. Prints how long
// each took. The suites named Slow run with the label `slow`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/integration/disturbed_run.h"
#include "tests/integration/kill_cells.h"
#include "tests/integration/retry_times.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

struct Cell {
  std::string name;
  std::vector<std::string> flags;
};

void PrintTo(const Cell& cell, std::ostream* out) { *out << cell.name; }

std::string name_of_cell(const ::testing::TestParamInfo<Cell>& info) {
  return info.param.name;
}

// Batches of 8 are one group over both ranks; groups of 4 are on one rank each,
// except those of the short last batch of an epoch, which span both.
Cell cell(const std::string& name, const std::string& layout, int zero,
          const std::vector<std::string>& more = {}) {
  Cell made{name + "_zero_" + std::to_string(zero),
            {"--layout", layout, "--zero", std::to_string(zero)}};
  made.flags.insert(made.flags.end(), more.begin(), more.end());
  return made;
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (int zero = 0; zero <= 3; ++zero) {
    cells.push_back(cell("groups_over_ranks", "data=2", zero));
    cells.push_back(cell("sync_bn", "data=2", zero, {"--sync-bn"}));
    cells.push_back(cell("short_batch", "data=2", zero, {"--bn-group", "4"}));
  }
  for (int zero = 0; zero <= 1; ++zero) {  // others cannot be captured
    cells.push_back(
        cell("graphs", "data=2", zero, {"--bn-group", "4", "--cuda-graphs"}));
  }
  cells.push_back(cell("spatial", "spatial=2", 0));
  cells.push_back(cell("pipeline", "pipeline=2", 0));
  return cells;
}

std::vector<std::string> command(const Cell& cell) {
  return joined(
      joined(train_fp64("8"), {"--max-steps", std::to_string(kKillSteps),
                               "--device", "0,1", "--backend", "nccl"}),
      cell.flags);
}

std::string oom(int rank, int step, int64_t allocation) {
  return "oom@rank=" + std::to_string(rank) + ",step=" + std::to_string(step) +
         ",allocation=" + std::to_string(allocation);
}

class NcclMemory : public ::testing::TestWithParam<Cell> {
 protected:
  void SetUp() override {
    setenv(
        "HEADROOM_DEVICE_PLUGIN",
        (std::string(HEADROOM_BUILD_DIR) + "/tests/libheadroom_testdevice.so")
            .c_str(),
        1);
  }
  void TearDown() override { unsetenv("HEADROOM_DEVICE_PLUGIN"); }
};

TEST_P(NcclMemory, ARefusalAnywhereCostsNothingButTime) {
  // A calm run also counts the allocations of its steps.
  std::string beyond;
  for (int rank = 0; rank < 2; ++rank) {
    beyond += (rank == 0 ? "" : ";") + oom(rank, 2, 1000000000);
  }
  const fs::path calm_folder = fresh_folder() / "calm";
  const std::vector<Json> calm =
      train_in(calm_folder, command(GetParam()), {"--inject", beyond});
  ASSERT_EQ(calm.size(), static_cast<size_t>(kKillSteps));
  const std::vector<int64_t> allocations = counted_allocations(calm_folder, 2);
  ASSERT_GT(allocations.at(0), 100);
  ASSERT_GT(allocations.at(1), 100);

  // Step 4 is the short one. Each fault has a step of its own.
  std::string faults;
  const auto add = [&](int rank, int step, double part) {
    const int64_t all = allocations[static_cast<size_t>(rank)];
    const auto place = static_cast<int64_t>(part * static_cast<double>(all));
    faults += (faults.empty() ? "" : ";") +
              oom(rank, step, std::clamp<int64_t>(place, 1, all - 2));
  };
  add(1, 1, 0.15);  // forward
  add(0, 2, 0.15);
  add(1, 3, 0.7);  // backward
  add(0, 4, 0.4);  // of the short batch
  add(1, 5, 1.0);  // before the commit, and after it
  add(0, 6, 0.0);
  add(0, 7, 0.15), add(1, 7, 0.15);  // both ranks, in one step
  add(0, 7, 0.7), add(1, 7, 0.7);

  const fs::path folder = fresh_folder() / "disturbed";
  fs::create_directories(folder);
  const ProgramResult run =
      run_program(joined(command(GetParam()), {"--inject", faults}), folder);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(events_named(folder, "loss_of_process").empty()) << run.err;
  const std::vector<Json> steps = steps_so_far(folder);
  ASSERT_EQ(steps.size(), calm.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(calm[i].at("samples"), steps[i].at("samples"));
    for (const char* key : {"loss", "grad_norm"}) {
      // Policies change no bit; the later rungs change the order of sums.
      EXPECT_LT(relative(calm[i], steps[i], key), i < 7 ? 1e-15 : 1e-9)
          << "step " << i << ", " << key;
    }
  }
  expect_exact_ledger(folder);
  const RetryTimes times = retry_times(folder);
  times.print(GetParam().name);
  EXPECT_GE(times.count(), 8u) << run.err;
  EXPECT_LT(times.longest(), 2) << run.err;
}

INSTANTIATE_TEST_SUITE_P(Slow, NcclMemory, ::testing::ValuesIn(all_cells()),
                         name_of_cell);

INSTANTIATE_TEST_SUITE_P(
    Quick, NcclMemory,
    ::testing::Values(cell("groups_over_ranks", "data=2", 0),
                      cell("groups_over_ranks", "data=2", 3)),
    name_of_cell);

}  // namespace
}  // namespace headroom::testing
