#include "coordinator/run/silence.h"
#include "parallel/base/text.h"

#include <algorithm>

namespace headroom::coordinator {
namespace {

// Three heartbeat intervals. After a longer gap between two messages, the whole
// node counts as having been silent.
constexpr std::chrono::milliseconds kGap{750};

std::string words(std::chrono::milliseconds limit) {
  return cat("for ", limit.count(), " ms");
}

}  // namespace

void NodeVoice::note(TimePoint at) {
  if (at <= last_heard) return;
  const auto gap = at - last_heard;
  // Other connections of the node may recover later: TCP's next retransmission
  // can take as long again as the gap.
  if (gap > kGap) all_heard_from = at + gap;
  last_heard = at;
}

std::optional<std::string> silence_error(TimePoint now, TimePoint last_seen,
                                         const NodeVoice& node,
                                         const SilenceLimits& limits) {
  const bool is_alone = node.has_hung_up || now - node.last_heard <= kGap;
  if (now - last_seen > limits.node) {
    return words(limits.node) + (is_alone ? "" : ", with its whole node");
  }
  const TimePoint since =
      node.has_hung_up ? last_seen : std::max(last_seen, node.all_heard_from);
  if (is_alone && now - since > limits.process) return words(limits.process);
  return std::nullopt;
}

}  // namespace headroom::coordinator
