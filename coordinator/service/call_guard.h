// CallGuard: which calls a coordinator looks at: those that know the join token
// and do not come too often.
//
// The token is looked at first: who does not know it uses up nobody's budget.
// Budgets are refilled as time passes. Each member that has proved its name has
// one of its own; all other callers of a host share one. A budget has a small
// part for calls that take part (Register, Watch). What is refused is counted
// by its kind, and logged at most once a second and kind.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/run/clock.h"

namespace headroom::coordinator {

// Few kinds: each is a series of its own in the metrics.
enum class RefusalKind {
  kWrongToken,
  kTooManyCalls,
  kTooManyJoins,
  kForeignName,  // somebody speaks for another member
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

struct CallBudget {
  double calls = 0;
  double joins = 0;
  TimePoint filled;
};

// Budgets of at most kMaxNames names: the one that was used least recently goes
// first.
class CallBudgets {
 public:
  static constexpr size_t kMaxNames = 8192;
  CallBudget& of(TimePoint now, const std::string& name);

 private:
  struct Entry {
    CallBudget budget;
    std::list<std::string>::iterator place;  // its entry in recent_
  };
  std::map<std::string, Entry> budgets_;
  std::list<std::string> recent_;  // the newest first
};

class CallGuard {
 public:
  // Well beyond what a worker does, and the agents of a host before they are
  // known.
  static constexpr double kCallsPerSecond = 10000;
  static constexpr double kJoinsPerSecond = 50;
  static constexpr double kJoinsAtOnce = 1000;

  // `token`: that callers must know; "" lets everybody in.
  explicit CallGuard(std::string token) : token_(std::move(token)) {}

  // None if the call is let in. `peer` as gRPC says it: "ipv4:10.0.0.2:41234".
  // `member`: who the caller has proved to be; "" for anybody else.
  std::optional<RefusalKind> admit(TimePoint now, std::string_view peer,
                                   const std::string& token,
                                   const std::string& member, bool joins);

  // Counts a refusal, also one that is found elsewhere, under `name`. True if
  // it should be logged now.
  bool refuse(TimePoint now, const std::string& name);

  // The counts by name.
  const std::map<std::string, int64_t>& refused() const { return refused_; }

 private:
  const std::string token_;
  CallBudgets hosts_;
  CallBudgets members_;
  std::map<std::string, int64_t> refused_;
  std::map<std::string, TimePoint> logged_;
};

// "ipv4:10.0.0.2:41234" -> "ipv4:10.0.0.2".
std::string host_of_peer(std::string_view peer);

}  // namespace headroom::coordinator
