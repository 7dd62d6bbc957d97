// Layout invariance: the losses and gradient norms of a run are those of one
// process, whatever the number of processes and however they talk.
//
// In float64, relative to one process: steps 1-5 within 1e-9; through step 20
// loss within 1e-6 and gradient norm within 1e-4 (training is chaotic, so
// rounding itself grows). Mosaic, warm-up, EMA and a short last batch included.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

constexpr int kSteps = 20;
constexpr const char* kCalm[] = {"--set", "hyp.lr0=1e-5",
                                 "--set", "hyp.lrf=1",
                                 "--set", "hyp.warmup_epochs=0"};

std::vector<std::string> train_command(const std::string& batch, int steps) {
  return {program("headroom"),
          "train",
          "--data",
          shapes_data(),
          "--cfg",
          "yolov5n",
          "--img",
          "96",
          "--batch",
          batch,
          "--epochs",
          "40",
          "--precision",
          "fp64",
          "--threads",
          "1",
          "--workers",
          "1",
          "--device",
          "cpu",
          "--noval",
          "--max-steps",
          std::to_string(steps)};
}

std::vector<Json> train(std::vector<std::string> command,
                        const std::vector<std::string>& more,
                        const std::string& name) {
  const std::filesystem::path folder = fresh_folder() / name;
  std::filesystem::create_directories(folder);
  command.insert(command.end(), more.begin(), more.end());
  const ProgramResult result = run_program(command, folder);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return read_lines(folder / "runs/train/exp/steps.jsonl");
}

double relative(const Json& a, const Json& b, const char* key) {
  const double x = a.at(key).get<double>();
  const double y = b.at(key).get<double>();
  return std::abs(x - y) / std::max(std::abs(x), 1e-300);
}

void expect_equivalent(const std::vector<Json>& one,
                       const std::vector<Json>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (size_t step = 0; step < one.size(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const bool early = step < 5;
    for (const char* key : {"loss", "box", "obj", "cls"}) {
      EXPECT_LT(relative(one[step], other[step], key), early ? 1e-9 : 1e-6)
          << key;
    }
    EXPECT_LT(relative(one[step], other[step], "grad_norm"),
              early ? 1e-9 : 1e-4);
    EXPECT_EQ(one[step].at("samples"), other[step].at("samples"));
    EXPECT_EQ(one[step].at("lr"), other[step].at("lr"));
  }
}

// One process at each batch size, computed once for all tests of this file.
const std::vector<Json>& one_process(const std::string& batch) {
  static std::map<std::string, std::vector<Json>> runs;
  auto& run = runs[batch];
  if (run.empty()) {
    run = train(train_command(batch, kSteps), {"--processes", "1"},
                "one-" + batch);
  }
  return run;
}

struct Layout {
  std::string name;
  std::string batch;
  std::vector<std::string> flags;
  // Compared; where steps are few per epoch rounding grows faster.
  size_t steps = kSteps;
};

class DataParallel : public ::testing::TestWithParam<Layout> {};

TEST_P(DataParallel, EqualsOneProcess) {
  const Layout& layout = GetParam();
  std::vector<Json> one = one_process(layout.batch);
  ASSERT_EQ(one.size(), kSteps);
  one.resize(layout.steps);
  expect_equivalent(
      one, train(train_command(layout.batch, static_cast<int>(layout.steps)),
                 layout.flags, layout.name));
}

// 37 images: batch 8 leaves a last batch of 5, batch 6 one of 1 (ranks without
// a sample), batch 16 one of 5.
INSTANTIATE_TEST_SUITE_P(
    Layouts, DataParallel,
    ::testing::Values(
        Layout{"data2", "8", {"--processes", "2"}},
        Layout{"data3_uneven", "8", {"--processes", "3"}},
        Layout{"data4", "16", {"--layout", "data=4"}},
        Layout{"data2_short_batch_of_one", "6", {"--processes", "2"}},
        // Shares 9 and 8 of the last batch of 17, in groups of 10 and 7.
        Layout{"data2_group_behind_a_straddling_one",
               "20",
               {"--processes", "2"},
               10},
        Layout{"data2_small_groups",
               "8",
               {"--processes", "2", "--bn-group", "8"}}),
    [](const auto& info) { return info.param.name; });

TEST(Mpirun, TwoSlotsEqualOneProcess) {
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "mpirun is not installed";
  }
  for (const std::string backend : {"auto", "mpi"}) {
    SCOPED_TRACE(backend);
    std::vector<std::string> command = {
        "mpirun",    "-np", "2", "--oversubscribe", "--allow-run-as-root",
        "--bind-to", "none"};
    const auto rest = train_command("8", kSteps);
    command.insert(command.end(), rest.begin(), rest.end());
    expect_equivalent(one_process("8"),
                      train(command, {"--processes", "1", "--backend", backend},
                            "mpirun-" + backend));
  }
}

TEST(CalmRun, StaysEqualAndEndsWithEqualWeights) {
  std::vector<std::string> command = train_command("8", 60);
  command.insert(command.end(), std::begin(kCalm), std::end(kCalm));
  const std::vector<Json> one = train(command, {"--processes", "1"}, "one");
  const std::vector<Json> two = train(command, {"--processes", "2"}, "two");
  ASSERT_EQ(one.size(), two.size());
  for (size_t step = 0; step < one.size(); ++step) {
    EXPECT_LT(relative(one[step], two[step], "loss"), 1e-6) << step;
    EXPECT_LT(relative(one[step], two[step], "grad_norm"), 1e-6) << step;
  }
}

}  // namespace
}  // namespace headroom::testing
