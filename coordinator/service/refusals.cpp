#include "coordinator/service/refusals.h"

#include <chrono>

#include "parallel/base/check.h"

namespace headroom::coordinator {

std::string to_string(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::kWrongToken:
      return "wrong join token";
    case RefusalKind::kForeignName:
      return "another member's name";
    case RefusalKind::kStale:
      return "stale";
    case RefusalKind::kNotAsAgreed:
      return "not as agreed";
    case RefusalKind::kMessageTooLong:
      return "message too long";
    case RefusalKind::kNoRoom:
      return "no room";
    case RefusalKind::kNotYet:
    case RefusalKind::kEnding:
    case RefusalKind::kFailed:
      return "other";
  }
  HEADROOM_CHECK(false, "refusal");
}

bool Refusals::add(TimePoint now, const std::string& name) {
  ++counts_[name];
  const auto [entry, is_first] = logged_.try_emplace(name, now);
  if (!is_first && now - entry->second < std::chrono::seconds(1)) return false;
  entry->second = now;
  return true;
}

}  // namespace headroom::coordinator
