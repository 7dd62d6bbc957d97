// CallGuard: which calls a coordinator looks at: those that know the join token
// and come from a host that does not flood it.
//
// Two budgets per host, refilled as time passes: one for all calls, and a small
// one for those that take part (Register, Watch), so that nobody can try names
// in a hurry. What is refused is counted by reason, and logged at most once a
// second and reason.
//
// Ownership: a value. Threads: none of its own; guarded by its user.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>

#include "coordinator/run/clock.h"

namespace headroom::coordinator {

enum class Admission { kAdmitted, kWrongToken, kTooManyCalls, kTooManyJoins };
std::string to_string(Admission admission);

class CallGuard {
 public:
  // Well beyond what the largest host does: 64 workers at 100 steps a second.
  static constexpr double kCallsPerSecond = 10000;
  static constexpr double kJoinsPerSecond = 50;
  static constexpr double kJoinsAtOnce = 1000;
  static constexpr size_t kMaxHosts = 4096;

  // `token`: that callers must know; "" lets everybody in.
  explicit CallGuard(std::string token) : token_(std::move(token)) {}

  // `peer` as gRPC says it: "ipv4:10.0.0.2:41234".
  Admission admit(TimePoint now, std::string_view peer,
                  const std::string& token, bool joins);

  // A refusal that is found elsewhere (a stale generation, a message too long)
  // counts too. True if it should be logged now.
  bool refuse(TimePoint now, const std::string& reason);

  // By reason.
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
