// Silence: when a process from which no message arrives counts as lost.
//
// A process that dies closes its connections, which is noticed at once. Silence
// has other causes: the process was stopped; or its whole node is affected,
// because the machine is down, the cable is cut, or the network is slow for a
// moment. After a network fault, data arrives only with TCP's next
// retransmission, which may take as long again as the fault lasted.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "coordinator/run/clock.h"

namespace headroom::coordinator {

struct SilenceLimits {
  // Limit for one process while messages of other processes of its node arrive,
  // or after the connection of the node's agent has ended. A smaller value
  // finds a stopped process sooner, but treats a short stall as a loss.
  std::chrono::milliseconds process = std::chrono::seconds(2);
  // Limit if no message of any process of the node arrives. A network stall of
  // up to 2 s, with TCP's next retransmission, ends before this limit. Increase
  // it on an unreliable network.
  std::chrono::milliseconds node = std::chrono::seconds(5);
};

// When messages of a node's agent and workers arrived.
struct NodeVoice {
  TimePoint last_heard;
  // The time after a gap at which every process of the node has had time to
  // send again. The limit for one process counts from this time at the
  // earliest.
  TimePoint all_heard_from;
  bool has_hung_up = false;  // the agent's connection has ended

  // Records that a message arrived at `at` from the agent, or from a worker
  // that sends its own heartbeats. If an agent that reported for its workers
  // stops, the workers send their own heartbeats only after a gap, so the node
  // limit decides when the agent is lost.
  void note(TimePoint at);
};

// If a process whose last message arrived at `last_seen` has been silent for
// too long, returns the limit: "for 2000 ms". Else no value.
std::optional<std::string> silence_error(TimePoint now, TimePoint last_seen,
                                         const NodeVoice& node,
                                         const SilenceLimits& limits);

}  // namespace headroom::coordinator
