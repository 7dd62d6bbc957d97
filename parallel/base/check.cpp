#include "parallel/base/check.h"
#include "parallel/base/text.h"

#include <utility>

namespace headroom {

Error::Error(std::string tag, std::string what_happened, std::string remedy,
             ExitCode exit_code)
    : std::runtime_error("[" + tag + "] " + what_happened +
                         (remedy.empty() ? "" : ": " + remedy)),
      tag_(std::move(tag)),
      text_(std::move(what_happened)),
      remedy_(std::move(remedy)),
      exit_code_(exit_code) {}

CommunicationError::CommunicationError(const std::string& what_happened)
    : Error("communication", what_happened, "", ExitCode::kResource) {}

void fail_check(const char* condition, const char* file, int line,
                const std::string& message) {
  throw CheckFailure(
      cat(file, ":", line, ": check failed: ", condition, ": ", message));
}

}  // namespace headroom
