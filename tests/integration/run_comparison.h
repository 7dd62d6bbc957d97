// Compares two runs of the programs: what their steps.jsonl must have in
// common.
//
// The relative tolerance in float64: 1e-9 for steps 1-5; through step 20, 1e-6
// for the loss and 1e-4 for the gradient norm (training is chaotic, so rounding
// errors grow).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {

// `headroom train` in float64 on the drawn data at 96 px with one thread per
// process; the number of steps and the layout are not set.
std::vector<std::string> train_fp64(const std::string& batch);

// The command of train_fp64() on other data.
std::vector<std::string> train_fp64_on(const std::string& data,
                                       const std::string& batch);

// Runs `command` and `more` in `folder`, expects exit 0, and returns the lines
// of its steps.jsonl.
std::vector<Json> train_in(const std::filesystem::path& folder,
                           std::vector<std::string> command,
                           const std::vector<std::string>& more);

// |a[key] - b[key]| / |a[key]|.
double relative(const Json& a, const Json& b, const char* key);

// Expects losses and gradient norms within the tolerance, and equal samples and
// learning rates.
void expect_equivalent(const std::vector<Json>& one,
                       const std::vector<Json>& other);

// The largest measured peak of any step, by rank.
std::vector<int64_t> measured_peaks(const std::vector<Json>& steps);

}  // namespace headroom::testing
