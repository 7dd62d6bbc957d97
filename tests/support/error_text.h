// The text of the Error that a call throws.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "parallel/base/check.h"

namespace headroom {

// Calls `act` and returns the text of the Error that it throws, or "" if it
// throws none. If `code` is given, the test fails unless the Error has this
// exit code.
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
