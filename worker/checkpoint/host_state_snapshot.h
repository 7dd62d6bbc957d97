// HostStateSnapshot: a committed state, or a part of it, that outlives its
// generation in host memory.
//
// A part is a range of a layer of a flat buffer, named by the buffer and the
// layer of the model's table: what every layout cuts its own pieces from
// (state_restore.h). Packed, a state is one message for another rank.
//
// Ownership: parts_of() borrows the state's memory, the others own copies in
// host memory or share them with their message. No limit on tensors counts
// them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/step/training_state.h"

namespace headroom::checkpoint {

struct HeldPart {
  std::string buffer;
  int64_t layer = 0;  // a layer of the model's table
  int64_t begin = 0;  // its first element in the layer
  at::Tensor values;  // flat
};

struct HostStateSnapshot {
  step::TrainingCounters counters;
  std::string newest_line;  // steps.jsonl's; "": no step since the start
  std::vector<HeldPart> parts;
};

// What this rank has of the state, in place and without padding.
HostStateSnapshot parts_of(step::TrainingState& state,
                           const std::string& newest_line);

// A copy of it.
HostStateSnapshot hold_state(step::TrainingState& state,
                             const std::string& newest_line);

// One flat uint8 tensor, and back; the unpacked parts are views of it.
at::Tensor pack(const HostStateSnapshot& held);
HostStateSnapshot unpack(const at::Tensor& message);

}  // namespace headroom::checkpoint
