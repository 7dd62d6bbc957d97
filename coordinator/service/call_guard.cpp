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
    case RefusalKind::kStale:
      return "stale";
    case RefusalKind::kNotAsAgreed:
      return "not as agreed";
    case RefusalKind::kMessageTooLong:
      return "message too long";
    case RefusalKind::kNoRoom:
      return "no room";
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

CallGuard::Budget& CallGuard::budget_of(TimePoint now,
                                        const std::string& host) {
  const auto known = budgets_.find(host);
  if (known != budgets_.end()) {
    Budget& budget = known->second;
    recent_.splice(recent_.begin(), recent_, budget.place);
    const double seconds =
        std::chrono::duration<double>(now - budget.filled).count();
    budget.calls =
        std::min(kCallsPerSecond, budget.calls + seconds * kCallsPerSecond);
    budget.joins =
        std::min(kJoinsAtOnce, budget.joins + seconds * kJoinsPerSecond);
    budget.filled = now;
    return budget;
  }
  if (budgets_.size() >= kMaxHosts) {
    budgets_.erase(recent_.back());
    recent_.pop_back();
  }
  recent_.push_front(host);
  Budget& budget = budgets_[host];
  budget.filled = now;
  budget.place = recent_.begin();
  return budget;
}

std::optional<RefusalKind> CallGuard::admit(TimePoint now,
                                            std::string_view peer,
                                            const std::string& token,
                                            bool joins) {
  Budget& budget = budget_of(now, host_of_peer(peer));
  if (budget.calls < 1) return RefusalKind::kTooManyCalls;
  --budget.calls;
  // Before the token is looked at: guesses are joins.
  if (joins) {
    if (budget.joins < 1) return RefusalKind::kTooManyJoins;
    --budget.joins;
  }
  if (!token_.empty() && !wire::equal_secrets(token, token_)) {
    return RefusalKind::kWrongToken;
  }
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
