#include "parallel/pipeline/step_messages.h"

#include <algorithm>

namespace headroom::pipeline {

std::vector<InstructionMessages> step_messages(PipelineSchedule kind,
                                               int num_stages,
                                               int64_t num_micro_batches,
                                               int stage,
                                               const StageRoutes& routes) {
  std::vector<std::vector<Instruction>> lists;
  for (int other = 0; other < num_stages; ++other)
    lists.push_back(schedule(kind, num_stages, num_micro_batches, other));
  const auto message = [&lists](int layer, int peer,
                                const Instruction& wanted) {
    const auto& list = lists[static_cast<size_t>(peer)];
    return StageMessage{
        layer, peer,
        std::find(list.begin(), list.end(), wanted) - list.begin()};
  };

  std::vector<InstructionMessages> result;
  for (const Instruction& instruction : lists[static_cast<size_t>(stage)]) {
    InstructionMessages messages{instruction, {}, {}};
    const bool forward = instruction.kind == Instruction::Kind::kForward;
    auto& from_earlier = forward ? messages.receives : messages.sends;
    auto& to_later = forward ? messages.sends : messages.receives;
    for (const ReceivedMap& map : routes.received)
      from_earlier.push_back(message(map.layer, map.from, instruction));
    for (const SentMap& map : routes.sent)
      for (const int to : map.to)
        to_later.push_back(message(map.layer, to, instruction));
    result.push_back(std::move(messages));
  }
  return result;
}

}  // namespace headroom::pipeline
