// The results of a run do not depend on its layout: after two float64 epochs
// with validation, any layout gives the same results.csv and weights as a run
// of a single process.
#include <ATen/ops/linalg_vector_norm.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/run_comparison.h"
#include "worker/weights/safetensors.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
constexpr double kTolerance = 1e-6;

std::vector<std::vector<double>> rows_of(const fs::path& csv) {
  std::ifstream file(csv);
  std::vector<std::vector<double>> rows;
  std::string line;
  std::getline(file, line);  // the names of the columns
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string field;
    auto& row = rows.emplace_back();
    while (std::getline(fields, field, ',')) row.push_back(std::stod(field));
  }
  return rows;
}

fs::path two_epochs(const fs::path& folder,
                    const std::vector<std::string>& layout) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  // Removes --noval and sets two epochs; if a flag occurs twice, its last value
  // is used.
  std::vector<std::string> command = train_fp64("8");
  command.pop_back();
  command.insert(command.end(), {"--epochs", "2"});
  command.insert(command.end(), layout.begin(), layout.end());
  const ProgramResult result = run_program(command, folder);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return folder / "runs/train/exp";
}

void expect_same_weights(const fs::path& one, const fs::path& other) {
  const weights::Safetensors expected = weights::read_safetensors(one);
  const weights::Safetensors actual = weights::read_safetensors(other);
  EXPECT_EQ(expected.metadata, actual.metadata);
  ASSERT_EQ(expected.tensors.size(), actual.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    const at::Tensor a = tensor.to(at::kDouble);
    const at::Tensor b = actual.at(name).to(at::kDouble);
    EXPECT_LE(at::linalg_vector_norm(a - b).item<double>(),
              kTolerance * at::linalg_vector_norm(a).item<double>())
        << name;
  }
}

struct Case {
  std::string name;
  std::vector<std::string> flags;
};

class LayoutResults : public ::testing::TestWithParam<Case> {};

TEST_P(LayoutResults, AreThoseOfOneProcess) {
  // The run of one process, made once for all tests of this file.
  static const fs::path one = two_epochs(
      fs::path(HEADROOM_BUILD_DIR) / "tests/runs/layout_results_of_one",
      {"--processes", "1"});
  const fs::path other = two_epochs(fresh_folder(), GetParam().flags);
  const auto expected = rows_of(one / "results.csv");
  const auto actual = rows_of(other / "results.csv");
  ASSERT_EQ(expected.size(), 2u);
  ASSERT_EQ(actual.size(), 2u);
  for (size_t row = 0; row < 2; ++row) {
    ASSERT_EQ(expected[row].size(), 14u);
    ASSERT_EQ(actual[row].size(), 14u);
    for (size_t column = 0; column < 14; ++column) {
      EXPECT_NEAR(expected[row][column], actual[row][column],
                  kTolerance * std::max(1e-3, std::abs(expected[row][column])))
          << "row " << row << " column " << column;
    }
    // Checks that objects were detected and that the losses are recorded.
    EXPECT_GT(expected[row][5], 0);
    EXPECT_GT(expected[row][8], 0);
  }
  for (const char* name : {"best.safetensors", "last.safetensors"}) {
    SCOPED_TRACE(name);
    expect_same_weights(one / "weights" / name, other / "weights" / name);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LayoutResults,
    ::testing::Values(Case{"pipeline2", {"--layout", "pipeline=2"}},
                      Case{"spatial2", {"--layout", "spatial=2"}},
                      Case{"zero3", {"--layout", "data=2", "--zero", "3"}},
                      Case{"pipeline2_spatial2",
                           {"--layout", "pipeline=2,spatial=2"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace headroom::testing
