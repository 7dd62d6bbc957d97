#include "tests/integration/run_comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace headroom::testing {

std::vector<std::string> train_fp64(const std::string& batch) {
  return train_shapes(batch,
                      {"--epochs", "40", "--precision", "fp64", "--noval"});
}

std::vector<std::string> train_fp64_on(const std::string& data,
                                       const std::string& batch) {
  std::vector<std::string> command = train_fp64(batch);
  std::replace(command.begin(), command.end(), shapes_data(), data);
  return command;
}

std::vector<Json> train_in(const std::filesystem::path& folder,
                           std::vector<std::string> command,
                           const std::vector<std::string>& more) {
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
    EXPECT_LT(relative(one[step], other[step], "loss"), early ? 1e-9 : 1e-6);
    // In later steps only the loss has a bound: a term that is 3 % of the loss
    // may differ by as much as the whole loss.
    for (const char* term : {"box", "obj", "cls", "dfl"}) {
      if (!one[step].contains(term)) continue;
      const double scale = early ? one[step].at(term).get<double>()
                                 : one[step].at("loss").get<double>();
      EXPECT_LE(std::abs(one[step].at(term).get<double>() -
                         other[step].at(term).get<double>()),
                scale * (early ? 1e-9 : 1e-6))
          << term;
    }
    EXPECT_LT(relative(one[step], other[step], "grad_norm"),
              early ? 1e-9 : 1e-4);
    EXPECT_EQ(one[step].at("samples"), other[step].at("samples"));
    EXPECT_EQ(one[step].value("image_size", Json()),
              other[step].value("image_size", Json()));
    EXPECT_EQ(one[step].at("lr"), other[step].at("lr"));
  }
}

std::vector<int64_t> measured_peaks(const std::vector<Json>& steps) {
  std::vector<int64_t> peaks;
  for (const Json& step : steps) {
    for (const Json& memory : step.at("memory")) {
      const auto rank = memory.at("rank").get<size_t>();
      peaks.resize(std::max(peaks.size(), rank + 1));
      peaks[rank] = std::max(peaks[rank],
                             memory.at("measured_peak_bytes").get<int64_t>());
    }
  }
  return peaks;
}

}  // namespace headroom::testing
