// CallGuard: which calls a coordinator looks at: those that know the join token
// and come from a host that does not flood it.
//
// Two budgets per host, refilled as time passes: one for all calls, and a small
// one for those that take part (Register, Watch), so that nobody can try names
// in a hurry. What is refused is counted by its kind, and logged at most once a
// second and kind.
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
  kStale,  // of another generation or run
  kNotAsAgreed,
  kMessageTooLong,
  kNoRoom,
  kEnding,
  kFailed
};
// As the metrics name it.
std::string to_string(RefusalKind kind);

// Why a call is not done as asked.
struct Refusal {
  RefusalKind kind;
  std::string reason;
};

class CallGuard {
 public:
  // Well beyond what the largest host does: 64 workers at 100 steps a second.
  static constexpr double kCallsPerSecond = 10000;
  static constexpr double kJoinsPerSecond = 50;
  static constexpr double kJoinsAtOnce = 1000;
  static constexpr size_t kMaxHosts = 4096;

  // `token`: that callers must know; "" lets everybody in.
  explicit CallGuard(std::string token) : token_(std::move(token)) {}

  // None if the call is let in. `peer` as gRPC says it: "ipv4:10.0.0.2:41234".
  std::optional<RefusalKind> admit(TimePoint now, std::string_view peer,
                                   const std::string& token, bool joins);

  // Counts a refusal, also one that is found elsewhere, under `name`. True if
  // it should be logged now.
  bool refuse(TimePoint now, const std::string& name);

  // The counts by name.
  const std::map<std::string, int64_t>& refused() const { return refused_; }

 private:
  struct Budget {
    double calls = kCallsPerSecond;
    double joins = kJoinsAtOnce;
    TimePoint filled;
    std::list<std::string>::iterator place;  // in recent_
  };
  Budget& budget_of(TimePoint now, const std::string& host);

  const std::string token_;
  std::map<std::string, Budget> budgets_;
  std::list<std::string> recent_;  // hosts, the newest first
  std::map<std::string, int64_t> refused_;
  std::map<std::string, TimePoint> logged_;
};

// "ipv4:10.0.0.2:41234" -> "ipv4:10.0.0.2".
std::string host_of_peer(std::string_view peer);

}  // namespace headroom::coordinator
