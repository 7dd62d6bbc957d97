// A rank on a device runs out of memory. Whole programs use NCCL's own
// communicator code: processes on test devices, with a replacement for
// NCCL (tests/support/nccl_shim). Its streams deadlock if ranks issue
// collectives in different orders, as those of NCCL do.
//
// In each step of one run, memory is refused at another point: in forward, in
// backward, or near the commit (the last allocation of a step, or the first of
// the next one), on either rank or on both. The run survives every refusal
// without a lost process or step, and the losses are those of an undisturbed
// run. Prints how long each recovery took. The suites named Slow run with the
// label `slow`.
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
  std::string devices = "0,1";
};

void PrintTo(const Cell& cell, std::ostream* out) { *out << cell.name; }

std::string name_of_cell(const ::testing::TestParamInfo<Cell>& info) {
  return info.param.name;
}

// A batch of 8 is one group, which both ranks share. Groups of 4 are on one
// rank each, except that the groups of an epoch's short last batch are on both.
Cell cell(const std::string& name, const std::string& layout, int zero,
          const std::vector<std::string>& more = {}) {
  Cell made{name + "_zero_" + std::to_string(zero),
            {"--layout", layout, "--zero", std::to_string(zero)}};
  made.flags.insert(made.flags.end(), more.begin(), more.end());
  return made;
}

// Shares of 3, 3 and 2 images of two groups of 4: rank 1 shares one group with
// rank 0 and one with rank 2.
Cell shared_groups() {
  Cell made = cell("shared_groups", "data=3", 0, {"--bn-group", "4"});
  made.devices = "0,1,2";
  return made;
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (int zero = 0; zero <= 3; ++zero) {
    cells.push_back(cell("groups_over_ranks", "data=2", zero));
    cells.push_back(cell("sync_bn", "data=2", zero, {"--sync-bn"}));
    cells.push_back(cell("short_batch", "data=2", zero, {"--bn-group", "4"}));
  }
  for (int zero = 0; zero <= 1; ++zero) {  // graphs need ZeRO 0 or 1
    cells.push_back(
        cell("graphs", "data=2", zero, {"--bn-group", "4", "--cuda-graphs"}));
  }
  cells.push_back(cell("spatial", "spatial=2", 0));
  cells.push_back(cell("pipeline", "pipeline=2", 0));
  cells.push_back(shared_groups());
  return cells;
}

std::vector<std::string> command(const Cell& cell) {
  return joined(
      joined(train_fp64("8"), {"--max-steps", std::to_string(kKillSteps),
                               "--device", cell.devices, "--backend", "nccl"}),
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

  // Step 4 has the short batch. Each fault happens in a step of its own.
  std::string faults;
  const auto add = [&](int rank, int step, double part) {
    const int64_t all = allocations[static_cast<size_t>(rank)];
    const auto place = static_cast<int64_t>(part * static_cast<double>(all));
    faults += (faults.empty() ? "" : ";") +
              oom(rank, step, std::clamp<int64_t>(place, 1, all - 2));
  };
  add(1, 1, 0.15);  // a failure in forward
  add(0, 2, 0.15);
  add(1, 3, 0.7);  // a failure in backward
  add(0, 4, 0.4);  // a failure in the short batch
  add(1, 5, 1.0);  // near the commit, in this step and in the next
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
      // Activation policies change no bit; the later rungs of the memory ladder
      // change the order of sums.
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
                      cell("groups_over_ranks", "data=2", 3), shared_groups()),
    name_of_cell);

}  // namespace
}  // namespace headroom::testing
