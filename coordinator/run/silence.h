// Silence: when a process that is not heard is lost.
//
// Who dies closes his connection, which is heard at once. Silent is a process
// that was stopped, alone; or a whole node, whose machine is gone or whose
// cable is cut, or is slow for a moment: what was sent meanwhile comes only
// with TCP's next attempt, which may be as far away as the trouble has lasted.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "coordinator/run/clock.h"

namespace headroom::coordinator {

struct SilenceLimits {
  // The limit for a process while others of its node are heard, or whose
  // connection has ended.
  std::chrono::milliseconds process = std::chrono::seconds(2);
  // The limit where nobody of its node is heard. Stalls of 2 s end before it,
  // TCP's next attempt included.
  std::chrono::milliseconds node = std::chrono::seconds(5);
};

// How a node is heard, through its agent and all of its workers.
struct NodeVoice {
  TimePoint last_heard;
  // The time from which every process of the node has had its chance.
  TimePoint all_heard_from;
  bool has_hung_up = false;  // the agent's connection has ended

  // One of them was heard at `at`: the agent, or a worker that speaks for
  // itself. Where an agent that spoke for its workers is stopped, these speak
  // late, so that it is given up by the node's limit.
  void note(TimePoint at);
};

// Says how long a process that was last heard at `last_seen` has been silent
// when that is too long: "for 2000 ms". Nothing if it is not.
std::optional<std::string> silence_error(TimePoint now, TimePoint last_seen,
                                         const NodeVoice& node,
                                         const SilenceLimits& limits);

}  // namespace headroom::coordinator
