// step_messages: every message of one stage's step, in order of issue. Pure.
//
// A message is known by the instruction that sends or receives it, by the map
// (its layer) and by the other stage. Maps go forward, their gradients back,
// the same layers in the same order, so that both ends of a pair agree.
//
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/skip_routes.h"

namespace headroom::pipeline {

struct StageMessage {
  int layer = 0;
  int peer = 0;  // the other stage
  // Index of the instruction that handles the message at the peer.
  int64_t peer_instruction = 0;
  bool operator==(const StageMessage&) const = default;
};

struct InstructionMessages {
  Instruction instruction;
  std::vector<StageMessage> receives;  // before the computation
  std::vector<StageMessage> sends;     // after it
};

// One entry per instruction of schedule(kind, num_stages, num_micro_batches,
// stage).
std::vector<InstructionMessages> step_messages(PipelineSchedule kind,
                                               int num_stages,
                                               int64_t num_micro_batches,
                                               int stage,
                                               const StageRoutes& routes);

}  // namespace headroom::pipeline
