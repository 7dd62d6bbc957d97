// What the Error says that a call throws.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "parallel/base/check.h"

namespace headroom {

// Returns "" if `act` throws no Error. Expects that exit code, if one is given.
template <typename Act>
std::string error_text(const Act& act, std::optional<ExitCode> code = {}) {
  try {
    act();
  } catch (const Error& error) {
    if (code) {
      EXPECT_EQ(error.exit_code(), *code) << error.what();
    }
    return error.what();
  }
  return "";
}

}  // namespace headroom
