#include "coordinator/service/call_guard.h"

#include <algorithm>

#include "parallel/base/check.h"
#include "proto/channel_security.h"

namespace headroom::coordinator {

std::string to_string(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::kWrongToken:
      return "wrong join token";
    case RefusalKind::kTooManyCalls:
      return "too many calls";
    case RefusalKind::kTooManyJoins:
      return "too many registrations";
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

std::string host_of_peer(std::string_view peer) {
  const size_t port = peer.rfind(':');
  return std::string(peer.substr(0, port));
}

CallBudget& CallBudgets::of(TimePoint now, const std::string& name) {
  const auto known = budgets_.find(name);
  if (known != budgets_.end()) {
    CallBudget& budget = known->second.budget;
    recent_.splice(recent_.begin(), recent_, known->second.place);
    const double seconds =
        std::chrono::duration<double>(now - budget.filled).count();
    budget.calls =
        std::min(CallGuard::kCallsPerSecond,
                 budget.calls + seconds * CallGuard::kCallsPerSecond);
    budget.joins =
        std::min(CallGuard::kJoinsAtOnce,
                 budget.joins + seconds * CallGuard::kJoinsPerSecond);
    budget.filled = now;
    return budget;
  }
  if (budgets_.size() >= kMaxNames) {
    budgets_.erase(recent_.back());
    recent_.pop_back();
  }
  recent_.push_front(name);
  Entry& entry = budgets_[name];
  entry.budget = {CallGuard::kCallsPerSecond, CallGuard::kJoinsAtOnce, now};
  entry.place = recent_.begin();
  return entry.budget;
}

std::optional<RefusalKind> CallGuard::admit(TimePoint now,
                                            std::string_view peer,
                                            const std::string& token,
                                            const std::string& member,
                                            bool joins) {
  if (!token_.empty() && !wire::equal_secrets(token, token_)) {
    return RefusalKind::kWrongToken;
  }
  CallBudget& budget = member.empty() ? hosts_.of(now, host_of_peer(peer))
                                      : members_.of(now, member);
  if (budget.calls < 1) return RefusalKind::kTooManyCalls;
  if (joins && budget.joins < 1) return RefusalKind::kTooManyJoins;
  --budget.calls;
  if (joins) --budget.joins;
  return std::nullopt;
}

bool CallGuard::refuse(TimePoint now, const std::string& name) {
  ++refused_[name];
  const auto [entry, is_first] = logged_.try_emplace(name, now);
  if (!is_first && now - entry->second < std::chrono::seconds(1)) return false;
  entry->second = now;
  return true;
}

}  // namespace headroom::coordinator
