// OperationWatch: which operations of one stream are under way, and which takes
// too long. It is told the time, and whether one has begun or ended; callers
// hold a lock.
//
// An operation's time starts when the device comes to it, not when it is
// issued: it may wait behind minutes of computing. It counts as PeerPatience
// says.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "parallel/base/peer_patience.h"

namespace headroom::cuda {

class OperationWatch {
 public:
  using Time = PeerPatience::Time;
  struct Operation {
    std::string name;
    std::function<bool()> has_begun;
    std::function<bool()> has_ended;
  };

  explicit OperationWatch(std::chrono::milliseconds timeout)
      : timeout_(timeout) {}

  // Operations are added in the order of the stream.
  void add(Operation operation) { under_way_.push_back(std::move(operation)); }

  // Forgets what has ended. Returns the name of the operation that is under way
  // for longer than the time limit, if there is one.
  std::optional<std::string> overdue(Time now, bool a_peer_works = false) {
    while (!under_way_.empty() && under_way_.front().has_ended()) {
      under_way_.pop_front();
      patience_.reset();
    }
    if (under_way_.empty()) return std::nullopt;
    if (!patience_) {
      if (under_way_.front().has_begun()) patience_.emplace(timeout_, now);
      return std::nullopt;
    }
    if (!patience_->is_over(now, a_peer_works)) return std::nullopt;
    return under_way_.front().name;
  }

  bool is_idle() const { return under_way_.empty(); }
  // An operation is under way on the device: as far as the last look saw.
  bool has_begun() const { return patience_.has_value(); }

 private:
  const std::chrono::milliseconds timeout_;
  std::deque<Operation> under_way_;       // the first one alone can have begun
  std::optional<PeerPatience> patience_;  // set once the first one has begun
};

}  // namespace headroom::cuda
