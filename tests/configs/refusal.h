// The text of a refusal, to be compared with the whole expected line.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "parallel/base/check.h"

namespace headroom::configs {

// The text of the Error that `act` throws; its exit code must be 2.
template <typename Act>
std::string refusal_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace headroom::configs
