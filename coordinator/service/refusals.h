// Refusals: why a call or a connection is not served, counted by kind for the
// metrics, and logged at most once a second and kind.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "coordinator/run/clock.h"

namespace headroom::coordinator {

// Few kinds: each is a series of its own in the metrics.
enum class RefusalKind {
  kWrongToken,
  kForeignName,  // the caller names another member
  kStale,        // the call belongs to another generation or run
  kNotAsAgreed,
  kMessageTooLong,
  kNoRoom,
  kNotYet,  // the call may succeed in a moment
  kEnding,
  kFailed
};
// The kind's name in the metrics.
std::string to_string(RefusalKind kind);

// Why a call is not done as asked.
struct Refusal {
  RefusalKind kind;
  std::string reason;
};

class Refusals {
 public:
  // Counts one under `name`. Returns true if it should be logged now.
  bool add(TimePoint now, const std::string& name);
  // The counts by name.
  const std::map<std::string, int64_t>& counts() const { return counts_; }

 private:
  std::map<std::string, int64_t> counts_;
  std::map<std::string, TimePoint> logged_;
};

}  // namespace headroom::coordinator
