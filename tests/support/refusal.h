// The text of a refusal, which a test compares with the whole expected line.
#pragma once

#include <string>

#include "parallel/base/check.h"
#include "tests/support/error_text.h"

namespace headroom::testing {

// The text of the Error that `act` throws, whose exit code must be `code`;
// "accepted" if it throws none.
template <typename Act>
std::string refusal_of(const Act& act, ExitCode code = ExitCode::kRequest) {
  const std::string text = error_text(act, code);
  return text.empty() ? "accepted" : text;
}

}  // namespace headroom::testing
