// The message of a refusal.
#pragma once

#include <functional>
#include <string>

#include "parallel/base/check.h"
#include "tests/support/error_text.h"

namespace headroom {

// The message with which `action` is refused; "not refused" if it is not.
// Expects the exit code.
inline std::string refusal_of(const std::function<void()>& action,
                              ExitCode code = ExitCode::kData) {
  const std::string text = error_text(action, code);
  return text.empty() ? "not refused" : text;
}

}  // namespace headroom
