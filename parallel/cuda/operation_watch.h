// OperationWatch: the unfinished operations of one stream, and whether one
// takes too long. Time and state are passed in; callers hold a lock.
//
// An operation's time starts when the device reaches it, not when it is issued,
// because it may be queued after minutes of computation. PeerPatience counts
// the time.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "parallel/base/peer_wait.h"

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

  // Add operations in the order of the stream.
  void add(Operation operation) { under_way_.push_back(std::move(operation)); }

  // Removes operations that have ended. Returns the name of an operation that
  // exceeds the time limit, if there is one.
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
  // True if an operation had begun on the device at the last overdue() call.
  bool has_begun() const { return patience_.has_value(); }

 private:
  const std::chrono::milliseconds timeout_;
  // The operations in the order of the stream. Only the first of them can have
  // begun.
  std::deque<Operation> under_way_;
  std::optional<PeerPatience> patience_;  // set once that operation has begun
};

}  // namespace headroom::cuda
