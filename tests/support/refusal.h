// The text of a refusal, to be compared with the whole expected line.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "parallel/base/check.h"

namespace headroom::testing {

// The text of the Error that `act` throws, whose exit code must be `code`;
// "accepted" if it throws none.
template <typename Act>
std::string refusal_of(const Act& act, ExitCode code = ExitCode::kRequest) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

}  // namespace headroom::testing
