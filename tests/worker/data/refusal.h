// The message of a refusal.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "parallel/base/check.h"

namespace headroom {

// The message with which `action` is refused; "not refused" if it is not.
// Expects the exit code.
inline std::string refusal_of(const std::function<void()>& action,
                              ExitCode code = ExitCode::kData) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), code);
    return error.what();
  }
  return "not refused";
}

}  // namespace headroom
